"""One rank playing a plan message by message: the reference that the solvers must equal.

The rules are ASTRA-sim's packet state machine (1.0 and 2.x share it); with an endpoint delay and reductions of zero it
is a plain "send, receive, send on".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from simcore.network.topology.moves import Moves
from simcore.system.plans.plan import Plan, Round

After = Callable[[int, Callable[[], None]], None]
Pay = Callable[[int, int, Callable[[], None]], None]


def at_endpoint(after: After, endpoint_ns: int, reduction_ns: Callable[[int], int]) -> Pay:
    """What packets cost without a memory bus: the endpoint's delay, then a reduction, which never queue."""

    def pay(number: int, reduce_bytes: int, credit: Callable[[], None]) -> None:
        after(endpoint_ns, partial(after, reduction_ns(reduce_bytes), credit) if reduce_bytes else credit)

    return pay


class RoundAutomaton:
    """State of one rank in one phase.

    Every packet costs something before it gives a credit: `pay(number, reduce_bytes, credit)`; a credit allows the next
    message and its receive. The phase ends when everything is sent and all credits are back. `after(delay_ns,
    callback)` runs a callback later, `send(round_index, entry)` hands a message to the network, `done()` tells the end.
    Messages that arrive before their receive is posted wait.
    """

    __slots__ = (
        "_arrived", "_credits", "_packets", "_posted", "_received", "_sent", "after", "done", "pay", "plan", "rounds",
        "send", "total",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        pay: Pay,
        after: After,
        send: Callable[[int, Round], None],
        done: Callable[[], None],
    ):
        self.plan, self.pay = plan, pay
        self.after, self.send, self.done = after, send, done
        self.rounds = plan.expanded
        self.total = len(self.rounds)
        self._sent = self._credits = self._packets = self._received = 0
        self._posted: set[int] = set()
        self._arrived: set[int] = set()

    def start(self) -> None:
        """Begin the phase."""
        for number in range(self.plan.window):
            self._inject(number, 0)

    def arrive(self, index: int) -> None:
        """The message of round `index` from this rank's source is here."""
        if index in self._posted:
            self._posted.discard(index)
            self._receive(index)
        else:
            self._arrived.add(index)

    def _receive(self, index: int) -> None:
        self._received += 1
        self._inject(self.plan.window + self._received - 1, self.rounds[self._received - 1].reduce_bytes)

    def _inject(self, number: int, reduce_bytes: int) -> None:
        self._packets += 1
        self.pay(number, reduce_bytes, self._credit)

    def _credit(self) -> None:
        self._credits += 1
        half = self.plan.half
        if not half or self._sent < half:
            self._try_send()  # a credit allows one message: that keeps no more than a window under way
        elif self._received >= half:  # the second half sends what the first has brought, and waits for all of it
            # Credits that came back while it waited allowed nothing then: they are spent together now.
            for _ in range(min(self.plan.window, self._packets, self._credits, self.total - self._sent)):
                self._try_send()
        if self._sent == self.total and self._credits == self.plan.window:  # what is under way still owes a credit
            self.done()

    def _try_send(self) -> None:
        if not (self._packets and self._sent < self.total and self._credits):
            return
        index = self._sent
        self._sent += 1
        self._credits -= 1
        self._packets -= 1
        self.send(index, self.rounds[index])
        if index in self._arrived:
            self._arrived.discard(index)
            self.after(0, lambda: self._receive(index))
        else:
            self._posted.add(index)


class TransferAutomaton:
    """State of one rank in a phase of transfers, by which messages are numbered; callbacks as of `RoundAutomaton`.

    A packet (numbered as transfers, ~index those before a send) is paid before the first sends, and with its reduction
    after every receive. The phase ends when everything is sent and received.
    """

    __slots__ = ("_early", "_left", "_lines", "_open", "_plan", "_rank", "after", "done", "pay", "send")

    def __init__(
        self,
        plan: Plan,
        rank: int,
        pay: Pay,
        after: After,
        send: Callable[[int], None],
        done: Callable[[], None],
    ):
        self._plan, self._rank, self.pay = plan, rank, pay
        self.after, self.send, self.done = after, send, done
        sends = plan.sends[rank]
        self._open = {index: len(plan.after[index]) for index in sends}
        self._lines: dict[int, deque[int]] = {}
        for index in sends:
            self._lines.setdefault(plan.transfers[index].dst, deque()).append(index)
        self._left = len(sends) + len(plan.receives[rank])
        self._early: list[int] | None = []

    def start(self) -> None:
        """Begin the phase; messages that came before it are received in this instant."""
        early, self._early = self._early or [], None
        if not self._left:
            self.after(0, self.done)
        for index in [index for index, waits in self._open.items() if not waits]:
            self._open[index] = 1
            self.pay(~index, 0, partial(self._released, (index,)))
        for index in sorted(early):
            self.after(0, partial(self.arrive, index))

    def arrive(self, index: int) -> None:
        """The message of transfer `index` is here."""
        if self._early is not None:
            self._early.append(index)
            return
        self.pay(index, self._plan.transfers[index].charge_bytes, partial(self._received, index))

    def _received(self, index: int) -> None:
        self._left -= 1
        self._released(self._plan.before[index])

    def _released(self, indexes: Sequence[int]) -> None:
        """Transfers wait for one thing less; those to one peer go in order."""
        for index in indexes:
            self._open[index] -= 1
            line = self._lines[self._plan.transfers[index].dst]
            while line and not self._open[line[0]]:
                self._left -= 1
                self.send(line.popleft())
        if not self._left:
            self.done()


def automata(
    plan: Plan, rank: int, pay: Pay, after: After, send: Callable[[int, int, int], None], done: Callable[[], None]
) -> list[tuple[int, RoundAutomaton | TransferAutomaton]]:
    """What plays the parts of a plan on one rank, each with the number of its first message, the last part first.

    `send(number, peer, size_bytes)` hands a message to the network; `done` is told by each.
    """
    if not plan.rounds:

        def transfer(index: int) -> None:
            entry = plan.transfers[index]
            send(index, entry.dst, entry.size_bytes)

        return [(0, TransferAutomaton(plan, rank, pay, after, transfer, done))]

    def forward(first: int, moves: Moves, index: int, entry: Round) -> None:
        send(first + index, moves.on(rank, entry.hop), entry.size_bytes)

    return [
        (first, RoundAutomaton(part, pay, after, partial(forward, first, part.moves), done))
        for first, part in reversed(plan.parts)
    ]
