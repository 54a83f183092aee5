"""Explicit plans played: one rank message by message, or all ranks of a phase that has its links for itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simcore.system.automaton import After, Pay
from simcore.system.explicit import Explicit
from simcore.system.groups import RankGroup
from simcore.system.plans import Costs


class ExplicitAutomaton:
    """State of one rank in one phase; the callbacks are those of `RankAutomaton`, messages are numbered as transfers.

    A packet (numbered as transfers, ~index those before a send) is paid before the first sends, and with its reduction
    after every receive. The phase ends when everything is sent and received.
    """

    __slots__ = ("_early", "_left", "_lines", "_open", "_plan", "_rank", "after", "done", "pay", "send")

    def __init__(
        self,
        plan: Explicit,
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


def exits(plan: Explicit, group: RankGroup, arrivals_ns: NDArray[np.int64], costs: Costs) -> NDArray[np.int64]:
    """When each rank leaves, without contention.

    As `ExplicitAutomaton`, but of messages between the same two ranks the next begins when the bytes of the one before
    are gone, as on a link of their own.
    """
    delays_ns, occupied_ns = _times(plan, group)
    arrived_ns: list[int] = arrivals_ns.tolist()
    leave = list(arrived_ns)
    ready_ns = [arrival_ns + costs.endpoint_ns for arrival_ns in leave]
    received_ns: list[int] = []
    free_ns: dict[tuple[int, int], int] = {}
    for index, entry in enumerate(plan.transfers):
        pair = (entry.src, entry.dst)
        sent_ns = max((received_ns[source] for source in plan.after[index]), default=ready_ns[entry.src])
        start_ns = max(sent_ns, free_ns.get(pair, sent_ns))
        free_ns[pair] = start_ns + occupied_ns[index]
        here_ns = max(start_ns + delays_ns[index], arrived_ns[entry.dst]) + costs.endpoint_ns
        received_ns.append(here_ns + (costs.reduction_ns(entry.charge_bytes) if entry.charge_bytes else 0))
        leave[entry.src] = max(leave[entry.src], sent_ns)
        leave[entry.dst] = max(leave[entry.dst], received_ns[-1])
    return np.array(leave)


def _times(plan: Explicit, group: RankGroup) -> list[list[int]]:
    """Of every transfer: its time, and the part of it that its bytes take."""
    entries = [(entry.src, entry.dst, entry.size_bytes) for entry in plan.transfers]
    src, dst, size_bytes = np.array(entries, np.int64).reshape(-1, 3).T
    delays_ns = empty_ns = group.between(src, dst, 0) if entries else src
    for size in set(size_bytes.tolist()):
        same = size_bytes == size
        delays_ns = np.where(same, group.between(src, dst, size), delays_ns)
    return [delays_ns.tolist(), (delays_ns - empty_ns).tolist()]
