"""Sends and receives: matched by tag, ends and size, in order; the network only delivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import simpy

from simcore.network.instant import after

__all__ = ["RENDEZVOUS_BYTES", "Mail", "Mailbox"]

Done = Callable[[], None]
Carry = Callable[[int, int, int, tuple[int, ...], Done], None]
RENDEZVOUS_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Mail:
    """What identifies a message: sends and receives of equal mail are matched in order."""

    tag: int
    src: int
    dst: int
    size_bytes: int


@dataclass(slots=True)
class _Side:
    """What one side of a matching is waiting for, by (mail, number)."""

    posted: Counter[Mail] = field(default_factory=Counter)
    waiting: dict[tuple[Mail, int], Done] = field(default_factory=dict)


class Mailbox:
    """All messages of a run.

    `carry(src, dst, size_bytes, key, deliver)` is the network. A send is over when its message is delivered, whether
    the receive is posted or not (ASTRA-sim 2.x). With `rendezvous` the receiver asks first, with a small message.
    """

    def __init__(self, env: simpy.Environment, carry: Carry, *, rendezvous: bool = False):
        self._env, self._carry, self._rendezvous = env, carry, rendezvous
        self._sends, self._receives = _Side(), _Side()
        self._arrived: set[tuple[Mail, int]] = set()
        self._asked: set[tuple[Mail, int]] = set()

    def send(self, mail: Mail, done: Done) -> None:
        """Send now, or when the receiver has asked."""
        key = self._next(self._sends, mail)
        transmit = partial(self._transmit, key, done)
        if not self._rendezvous or key in self._asked:
            transmit()
        else:
            self._sends.waiting[key] = transmit

    def receive(self, mail: Mail, done: Done) -> None:
        """Wait for a message."""
        key = self._next(self._receives, mail)
        if self._rendezvous:
            order = (mail.tag, mail.dst, mail.src, 1)
            self._carry(mail.dst, mail.src, RENDEZVOUS_BYTES, order, partial(self._ask, key, done))
        else:
            self._expect(key, done)

    def waiting(self) -> list[tuple[Mail, bool]]:
        """Messages that one side waits for in vain, and whether it is the sender."""
        received = [(mail, False) for mail, _ in self._receives.waiting]
        return received + [(mail, True) for mail, _ in self._sends.waiting]

    def _next(self, side: _Side, mail: Mail) -> tuple[Mail, int]:
        side.posted[mail] += 1
        return mail, side.posted[mail]

    def _transmit(self, key: tuple[Mail, int], done: Done) -> None:
        mail = key[0]
        order = (mail.tag, mail.src, mail.dst, 0)
        self._carry(mail.src, mail.dst, mail.size_bytes, order, partial(self._deliver, key, done))

    def _deliver(self, key: tuple[Mail, int], sent: Done) -> None:
        sent()
        received = self._receives.waiting.pop(key, None)
        if received:
            received()
        else:
            self._arrived.add(key)

    def _ask(self, key: tuple[Mail, int], done: Done) -> None:
        self._expect(key, done)
        transmit = self._sends.waiting.pop(key, None)
        if transmit:
            transmit()
        else:
            self._asked.add(key)

    def _expect(self, key: tuple[Mail, int], done: Done) -> None:
        if key in self._arrived:
            self._arrived.discard(key)
            after(self._env, 0, lambda _: done())
        else:
            self._receives.waiting[key] = done
