"""Sends and receives: matched by tag, ends and size, in order; the network only delivers."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import simpy
from msgspec import Struct

from simcore.network.instant import Callback, Environment, after
from simcore.system.groups import class_of, first_apart
from simcore.timeline.events import COMPUTE_STREAM, NO_LAYER, EventBuffer, EventKind

if TYPE_CHECKING:  # pipelines are imported where there are some
    from simcore.workload.loops.pipeline import Transfer

Done = Callable[[], None]
Carry = Callable[[int, int, int, tuple[int, ...], Done], None]
RENDEZVOUS_BYTES = 8192


class Mail(Struct, frozen=True):
    """What identifies a message: sends and receives of equal mail are matched in order."""

    tag: int
    src: int
    dst: int
    size_bytes: int


class Pairs:
    """What is done when both sides are there: `waiting` is what one side has ready that the other has not called.

    What was called before it is ready is done at once, but behind what its side does first in that instant (`after`).
    What one side has ready under one key is called in that order.
    """

    def __init__(self, after: Callable[[int, Callback], None]) -> None:
        self._after = after
        self.waiting: dict[Any, deque[Callback]] = {}
        self._called = defaultdict[Hashable, int](int)

    def ready(self, key: Hashable, do: Callback) -> None:
        """One side is there."""
        called = self._called.pop(key, 0)
        if called > 1:
            self._called[key] = called - 1
        if called:
            self._after(0, do)
        else:
            self.waiting.setdefault(key, deque()).append(do)

    def call(self, key: Hashable) -> None:
        """The other one is there."""
        line = self.waiting.get(key)
        if not line:
            self._called[key] += 1
            return
        do = line.popleft()
        if not line:
            del self.waiting[key]
        do()


class Mailbox:
    """All messages of a run.

    `carry(src, dst, size_bytes, key, deliver)` is the network. A send is over when its message is delivered, whether
    the receive is posted or not (ASTRA-sim 2.x). With `rendezvous` the receiver asks first, with a small message.
    Messages are those of the first NPUs of the classes at both ends: they stand for all of `ranks`.
    """

    def __init__(self, env: Environment, carry: Carry, ranks: Sequence[Sequence[int]], *, rendezvous: bool = False):
        self._carry, self._rendezvous = carry, rendezvous
        self._ranks, self._class_of = ranks, class_of(ranks)
        self._sent, self._received = (defaultdict[Mail, Iterator[int]](count) for _ in range(2))
        self._unasked = dict[tuple[Mail, int], None]()  # messages that are held, in order
        behind = partial(after, env)
        self._receives, self._sends = Pairs(behind), Pairs(behind)  # until they are delivered, until they are asked for

    def send(self, mail: Mail, done: Done) -> tuple[Mail, int]:
        """Send now, or when the receiver has asked; gives what sender and receiver know the message by."""
        known = self._known_as(mail)
        key = known, next(self._sent[known])

        def deliver() -> None:
            done()
            self._receives.call(key)

        order = (known.tag, known.src, known.dst, 0)
        if not self._rendezvous:
            self._carry(mail.src, mail.dst, mail.size_bytes, order, deliver)
            return key

        def transmit() -> None:
            del self._unasked[key]
            self._carry(mail.src, mail.dst, mail.size_bytes, order, deliver)

        self._unasked[key] = None
        self._sends.ready(order, transmit)  # what asks says no size
        return key

    def receive(self, mail: Mail, done: Callback) -> tuple[Mail, int]:
        """Wait for a message; gives what `send` gave for it."""
        known = self._known_as(mail)
        key = known, next(self._received[known])

        def ask() -> None:
            self._receives.ready(key, done)
            self._sends.call((known.tag, known.src, known.dst, 0))

        if self._rendezvous:
            self._carry(mail.dst, mail.src, RENDEZVOUS_BYTES, (known.tag, known.dst, known.src, 1), ask)
        else:
            self._receives.ready(key, done)
        return key

    def waiting(self) -> list[tuple[Mail, bool]]:
        """Messages that one side waits for in vain, and whether it is the sender."""
        received = [(mail, False) for mail, _ in self._receives.waiting]
        return received + [(mail, True) for mail, _ in self._unasked]

    def _known_as(self, mail: Mail) -> Mail:
        """The message that stands for it."""
        src, dst = (int(self._ranks[self._class_of[end]][0]) for end in (mail.src, mail.dst))
        return Mail(mail.tag, src, dst, mail.size_bytes)


class Handovers:
    """Transfers of one run between the stages: every NPU hands over to those with its place in other stages.

    `carry` is the network, `sizes` are those of its dimensions, `width` is how many NPUs a stage has. A transfer is
    matched by the classes at its ends, and recorded on both when it arrives.
    """

    def __init__(
        self, env: Environment, events: EventBuffer, carry: Carry, ranks: Sequence[Sequence[int]],
        sizes: Sequence[int], width: int, size_bytes: int, *, rendezvous: bool,
    ):  # fmt: skip
        self._env, self._events, self._sizes = env, events, tuple(sizes)
        self._width, self._size_bytes = width, size_bytes
        self._firsts, self._class_of = [int(members[0]) for members in ranks], class_of(ranks)
        self._mailbox = Mailbox(env, carry, ranks, rendezvous=rendezvous)

    def send(self, npu_class: int, transfer: Transfer, name: int, phase: int, iteration: int) -> None:
        """Hand over to another stage what has a name in the timeline; nobody waits for the end of it."""
        src, dst = self._firsts[npu_class], self._partner(npu_class, transfer.stage)
        stream = COMPUTE_STREAM + 1 + first_apart(self._sizes, (src, dst))
        sent_ns = int(self._env.now)

        def arrived() -> None:
            for npu, kind in ((npu_class, EventKind.SEND), (int(self._class_of[dst]), EventKind.RECV)):
                row = (npu, stream, sent_ns, int(self._env.now), kind, name, NO_LAYER, phase)
                self._events.message(mail, sends=kind == EventKind.SEND)
                self._events.append((*row, self._size_bytes, iteration))

        mail, _ = self._mailbox.send(Mail(transfer.tag, src, dst, self._size_bytes), arrived)

    def receive(self, npu_class: int, transfer: Transfer) -> simpy.Event:
        """What succeeds when the transfer is here."""
        src, arrival = self._partner(npu_class, transfer.stage), self._env.event()
        self._mailbox.receive(Mail(transfer.tag, src, self._firsts[npu_class], self._size_bytes), arrival.succeed)
        return arrival

    def _partner(self, npu_class: int, stage: int) -> int:
        """Who has the place of the first of a class in another stage."""
        return self._firsts[npu_class] % self._width + stage * self._width
