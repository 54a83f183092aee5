"""One rank playing a plan message by message: the reference that the solvers must equal.

The rules are ASTRA-sim's packet state machine (1.0 and 2.x share it); with an endpoint delay and reductions of zero it
is a plain "send, receive, send on".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from simcore.system.plans.plan import Plan

Done = Callable[[], None]
After = Callable[[int, Done], None]
Pay = Callable[[int, int, Done], None]
Send = Callable[[int, int, int], None]
"""Hands message `number` to the network: to which rank, and its bytes."""


def at_endpoint(after: After, endpoint_ns: int, reduction_ns: Callable[[int], int]) -> Pay:
    """What packets cost without a memory bus: the endpoint's delay, then a reduction, which never queue."""

    def pay(number: int, reduce_bytes: int, credit: Done) -> None:
        after(endpoint_ns, partial(after, reduction_ns(reduce_bytes), credit) if reduce_bytes else credit)

    return pay


class RoundAutomaton:
    """State of one rank in one phase, whose messages are numbered from `first` on.

    Every packet costs something before it gives a credit: `pay(number, reduce_bytes, credit)`; a credit allows the next
    message and its receive. The phase ends when everything is sent and all credits are back. `after(delay_ns,
    callback)` runs a callback later, `done()` tells the end. Messages that arrive before their receive is posted wait.
    """

    def __init__(self, plan: Plan, rank: int, pay: Pay, after: After, send: Send, done: Done, first: int = 0):
        self._plan, self._rank, self._pay, self._after, self._send, self._done = plan, rank, pay, after, send, done
        self._rounds, self.first = plan.expanded, first
        self._sent = self._credits = self._packets = self._received = 0
        self._posted: set[int] = set()
        self._arrived: set[int] = set()

    def start(self) -> None:
        """Begin the phase."""
        for number in range(self._plan.window):
            self._inject(number, 0)

    def arrive(self, number: int) -> None:
        """A message from this rank's source is here."""
        if number in self._posted:
            self._posted.discard(number)
            self._receive()
        else:
            self._arrived.add(number)

    def _receive(self) -> None:
        self._received += 1
        self._inject(self._plan.window + self._received - 1, self._rounds[self._received - 1].reduce_bytes)

    def _inject(self, number: int, reduce_bytes: int) -> None:
        self._packets += 1
        self._pay(number, reduce_bytes, self._credit)

    def _credit(self) -> None:
        self._credits += 1
        half, window, total = self._plan.half, self._plan.window, len(self._rounds)
        if not half or self._sent < half:
            self._try_send()  # a credit allows one message: that keeps no more than a window under way
        elif self._received >= half:  # the second half sends what the first has brought, and waits for all of it
            # Credits that came back while it waited allowed nothing then: they are spent together now.
            for _ in range(min(window, self._packets, self._credits, total - self._sent)):
                self._try_send()
        if self._sent == total and self._credits == window:  # what is under way still owes a credit
            self._done()

    def _try_send(self) -> None:
        if not (self._packets and self._sent < len(self._rounds) and self._credits):
            return
        entry, number = self._rounds[self._sent], self.first + self._sent
        self._sent += 1
        self._credits -= 1
        self._packets -= 1
        self._send(number, self._plan.peer(self._rank, entry.hop), entry.size_bytes)
        if number in self._arrived:
            self._arrived.discard(number)
            self._after(0, self._receive)
        else:
            self._posted.add(number)


class TransferAutomaton:
    """State of one rank in a phase of transfers, by which messages are numbered; callbacks as of `RoundAutomaton`.

    A packet (numbered as transfers, ~index those before a send) is paid before the first sends, and with its reduction
    after every receive. The phase ends when everything is sent and received.
    """

    first = 0

    def __init__(self, plan: Plan, rank: int, pay: Pay, after: After, send: Send, done: Done):
        self._plan, self._rank, self._pay, self._after, self._send, self._done = plan, rank, pay, after, send, done
        sends = plan.sends[rank]
        self._open = {index: plan.waits[index] + (not plan.after[index]) for index in sends}
        self._left = len(sends) + len(plan.receives[rank])
        self._early: list[int] | None = []

    def start(self) -> None:
        """Begin the phase; messages that came before it are received in this instant."""
        early, self._early = self._early or [], None
        if not self._left:
            self._after(0, self._done)
        for index in [index for index in self._open if not self._plan.after[index]]:
            self._pay(~index, 0, partial(self._released, (index,)))
        for index in sorted(early):
            self._after(0, partial(self.arrive, index))

    def arrive(self, index: int) -> None:
        """The message of transfer `index` is here."""
        if self._early is not None:
            self._early.append(index)
            return
        self._pay(index, self._plan.transfers[index].charge_bytes, partial(self._received, index))

    def _received(self, index: int) -> None:
        self._left -= 1
        self._released(self._plan.before[index])

    def _released(self, indexes: Sequence[int]) -> None:
        """Transfers wait for one thing less; what is sent, the next in its line need not wait for."""
        for first in indexes:
            index: int | None = first
            while index is not None:
                self._open[index] -= 1
                if self._open[index]:
                    break
                self._left -= 1
                entry = self._plan.transfers[index]
                self._send(index, entry.dst, entry.size_bytes)
                index = self._plan.behind.get(index)
        if not self._left:
            self._done()


class Player(Protocol):
    """One rank that plays a plan, or a part of one, whose messages are numbered from `first` on."""

    first: int

    def start(self) -> None:
        """Begin the phase."""

    def arrive(self, number: int, /) -> None:
        """A message is here."""


def automata(plan: Plan, rank: int, pay: Pay, after: After, send: Send, done: Done) -> Sequence[Player]:
    """What plays the parts of a plan on one rank, the last part first; `done` is told by each."""
    if not plan.rounds:
        return [TransferAutomaton(plan, rank, pay, after, send, done)]
    return [RoundAutomaton(part, rank, pay, after, send, done, first) for first, part in reversed(plan.parts)]
