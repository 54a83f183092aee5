"""Sends and receives: matched by tag, ends and size, in order; the network only delivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import simpy
from msgspec import Struct

from simcore.network.instant import after

Done = Callable[[], None]
Carry = Callable[[int, int, int, tuple[int, ...], Done], None]
RENDEZVOUS_BYTES = 8192


class Mail(Struct, frozen=True):
    """What identifies a message: sends and receives of equal mail are matched in order."""

    tag: int
    src: int
    dst: int
    size_bytes: int


class Handshakes:
    """Messages that leave when their receiver has asked for them (rendezvous); `waiting` are those ready to.

    One that was asked for before leaves at once, but behind what its sender does first in that instant (`after`).
    """

    def __init__(self, after: Callable[[int, Done], None]) -> None:
        self._after = after
        self.waiting: dict[Any, Done] = {}
        self._asked: set[Hashable] = set()

    def send(self, key: Hashable, transmit: Done) -> None:
        """The sender has a message ready."""
        if key in self._asked:
            self._asked.discard(key)
            self._after(0, transmit)
        else:
            self.waiting[key] = transmit

    def ask(self, key: Hashable) -> None:
        """The receiver's request is here."""
        transmit = self.waiting.pop(key, None)
        if transmit:
            transmit()
        else:
            self._asked.add(key)


class Mailbox:
    """All messages of a run.

    `carry(src, dst, size_bytes, key, deliver)` is the network. A send is over when its message is delivered, whether
    the receive is posted or not (ASTRA-sim 2.x). With `rendezvous` the receiver asks first, with a small message.
    """

    def __init__(self, env: simpy.Environment, carry: Carry, *, rendezvous: bool = False):
        self._env, self._carry, self._rendezvous = env, carry, rendezvous
        self._sent: Counter[Mail] = Counter()
        self._received: Counter[Mail] = Counter()
        self._expected: dict[tuple[Mail, int], Done] = {}
        self._arrived: set[tuple[Mail, int]] = set()
        self._handshakes = Handshakes(lambda delay_ns, done: after(env, delay_ns, lambda _: done()))

    def send(self, mail: Mail, done: Done) -> tuple[Mail, int]:
        """Send now, or when the receiver has asked; gives what sender and receiver know the message by."""
        key = _next(self._sent, mail)
        transmit = partial(self._transmit, key, done)
        if self._rendezvous:
            self._handshakes.send(key, transmit)
        else:
            transmit()
        return key

    def receive(self, mail: Mail, done: Done) -> tuple[Mail, int]:
        """Wait for a message; gives what `send` gave for it."""
        key = _next(self._received, mail)
        if self._rendezvous:
            order = (mail.tag, mail.dst, mail.src, 1)
            self._carry(mail.dst, mail.src, RENDEZVOUS_BYTES, order, partial(self._ask, key, done))
        else:
            self._expect(key, done)
        return key

    def waiting(self) -> list[tuple[Mail, bool]]:
        """Messages that one side waits for in vain, and whether it is the sender."""
        received = [(mail, False) for mail, _ in self._expected]
        return received + [(mail, True) for mail, _ in self._handshakes.waiting]

    def _transmit(self, key: tuple[Mail, int], done: Done) -> None:
        mail = key[0]
        order = (mail.tag, mail.src, mail.dst, 0)
        self._carry(mail.src, mail.dst, mail.size_bytes, order, partial(self._deliver, key, done))

    def _deliver(self, key: tuple[Mail, int], sent: Done) -> None:
        sent()
        received = self._expected.pop(key, None)
        if received:
            received()
        else:
            self._arrived.add(key)

    def _ask(self, key: tuple[Mail, int], done: Done) -> None:
        self._expect(key, done)
        self._handshakes.ask(key)

    def _expect(self, key: tuple[Mail, int], done: Done) -> None:
        if key in self._arrived:
            self._arrived.discard(key)
            after(self._env, 0, lambda _: done())
        else:
            self._expected[key] = done


def _next(posted: Counter[Mail], mail: Mail) -> tuple[Mail, int]:
    """A mail and how many of its kind one side has posted with it."""
    posted[mail] += 1
    return mail, posted[mail]
