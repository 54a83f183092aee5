"""What repeats itself in an island of flows: periods that are left out, with the same answer to the last bit."""

from __future__ import annotations

from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.network.core import NEVER
from simcore.network.queued.compiled import columns_of
from simcore.network.queued.flow_tables import FINE, PARTS, SIGNALS
from simcore.network.queued.laws import Law
from simcore.network.topology.fabric import IntArray

FIRST, SOME, LONGEST = 32, 4, 256
"""So many steps are played before the first look, and to see how fast flows are; longer periods are not looked for."""
OF_FLOWS = ("loaded", "unsaid", "signals", "read", "round_ns", "oldest", "current")
OF_WAYS = ("loaded", "unsaid")
OF_QUEUES = (
    "share",
    "left",
    "chance",
    "use",
    "came",
    "own_next",
    "crossing",
    "paused",
    "stands",
    "noted",
    "highest",
)
SUMS = ("still", "marked", "used")
OF_SIGNALS = ("parts", "unmarked", "use")


class _Seen:
    """An island between two steps: `state` as it is beside its clock and its `sums`, and times that may move on."""

    def __init__(self, tables: Any, island: Any):
        self.now, self.rows = int(island.clock.now_ns), int(island.clock.rows)
        flows, queues = np.array(island.active, np.int64), np.array(island.used, np.int64)
        column, self.ways = tables.column, np.array(island.lanes, np.int64)
        self.said, self.signals = column("flows", "said_ns", flows), _signals(tables, flows)
        sent = column("signals", "sent_ns", self.signals)
        counts = column("flows", "signals", flows)
        oldest = np.full(len(flows), self.now)
        oldest[counts > 0] = sent[(np.cumsum(counts) - counts)[counts > 0]]
        lawful = column("flows", "law", flows) >= 0
        self.laws = column("flows", "law", flows)[lawful]
        self.reacted = column("laws", "reacted_ns", self.laws)
        self.sums = {name: column("queues", name, queues) for name in SUMS}
        self.injected, self.acked = column("flows", "injected", flows), column("flows", "acked", flows)
        self.on_ways = column("ways", "injected", self.ways)
        self.heard = column("flows", "heard_ns", flows)
        self.at_rest = np.array_equal(column("flows", "oldest", flows), column("flows", "current", flows))
        self.state: list[NDArray[Any]] = [
            *(column("flows", name, flows) for name in OF_FLOWS),
            *(column("ways", name, self.ways) for name in OF_WAYS),
            column("hops", "tank", tables.hops_of(self.ways)),
            np.minimum(self.now - self.said, column("flows", "period_ns", flows)),
            np.minimum(self.now - self.reacted, (self.now - oldest + 1)[lawful]),
            (self.injected - self.acked)[lawful],
            (self.now - self.heard) * (counts > 0),
            self.now - sent,
            column("signals", "due_ns", self.signals) - self.now,
            *(column("signals", name, self.signals) for name in OF_SIGNALS),
            *(column("queues", name, queues) for name in OF_QUEUES),
            column("queues", "mean_use", queues) * column("laws", "reads", self.laws).any(),
            *(column("laws", name, self.laws) for name in columns_of(Law) if name != "reacted_ns"),
        ]

    def alike(self, before: _Seen) -> bool:
        """Whether nothing is different, but what has been counted, and nothing was noted in between."""
        still = self.at_rest and before.at_rest and self.rows == before.rows
        return still and all(np.array_equal(one, other) for one, other in zip(before.state, self.state, strict=True))


class Look:
    """Now and then looks at an island whether it is as it was a period ago: then it is so until a message ends."""

    def __init__(self, tables: Any, island: Any):
        self._tables, self._island = tables, island
        laws = tables.column("flows", "law", np.array(island.active, np.int64))
        patience_ns = tables.column("laws", "patience_ns", laws[laws >= 0])
        hears = len(patience_ns) and not patience_ns.any()  # in every round trip; else many steps are done at once
        self._wait = self.due = FIRST if hears else NEVER  # after so many steps
        self._injected: IntArray | None = None
        self._seen: _Seen | None = None

    def after(self, steps: int, until_ns: int) -> bool:
        """So many steps have been played, and go on until then; whether some were left out."""
        self.due -= steps
        if self.due > 0:
            return False
        flows, before, seen = np.array(self._island.active, np.int64), self._injected, self._seen
        if seen is not None:
            return self._compare(seen, until_ns)
        injected = self._tables.column("flows", "injected", flows)
        period = 0 if before is None else self._period(flows, (injected - before) // SOME)
        if before is None:
            self._injected, self.due = injected, SOME
        elif 0 < period <= LONGEST:
            self._seen, self.due = _Seen(self._tables, self._island), period
        else:
            self._later(2 * self._wait)
        return False

    def _compare(self, seen: _Seen, until_ns: int) -> bool:
        now = _Seen(self._tables, self._island)
        alike = now.alike(seen)
        self._later(FIRST if alike else 2 * self._wait)
        return alike and self._again(seen, now, until_ns)

    def _later(self, wait: int) -> None:
        self._injected = self._seen = None
        self.due = self._wait = wait

    def _period(self, flows: IntArray, gains: IntArray) -> int:
        """In how many steps all flows that gain so much in each tell their laws of it a whole number of times."""
        column = self._tables.column
        tell = (column("flows", "law", flows) >= 0) & (gains > 0)
        lasts = -(-column("flows", "period_ns", flows) // int(self._island.clock.step_ns))
        packets = -(-column("flows", "packet_bytes", flows) * PARTS // np.maximum(gains, 1))
        return lcm(*np.unique(np.maximum(lasts, packets)[tell]).tolist())

    def _again(self, seen: _Seen, now: _Seen, until_ns: int) -> bool:
        """Leave out periods, as long as no message has left its sender and nothing else happens."""
        tables, island = self._tables, self._island
        clock, flows, queues = island.clock, np.array(island.active, np.int64), np.array(island.used, np.int64)
        period_ns, gains = now.now - seen.now, now.injected - seen.injected
        sums = {name: now.sums[name] - seen.sums[name] for name in SUMS}
        current = tables.column("flows", "current", flows)
        sends = (gains > 0) & (current >= 0)
        partly = (sums["used"] > 0) & (sums["used"] < period_ns * FINE)
        if not sends.any() or (clock.timed and partly.any()):  # occupations are noted as they come
            return False
        left = tables.column("messages", "end", current[sends]) - now.injected[sends] - 1
        ends_ns = min(until_ns, int(clock.first_ns)) - now.now
        times = min(int((left // gains[sends]).min()), ends_ns // period_ns)
        if times <= 0:
            return False
        later_ns = times * period_ns
        clock.now_ns += later_ns
        tables.write("flows", "injected", flows, now.injected + times * gains)
        tables.write("ways", "injected", now.ways, now.on_ways + times * (now.on_ways - seen.on_ways))
        tables.write("flows", "acked", flows, now.acked + times * gains)
        for name in ("said_ns", "asked_ns"):
            tables.write("flows", name, flows, now.said + later_ns * (now.said != seen.said))
        tables.write("flows", "heard_ns", flows, now.heard + later_ns * (now.heard != seen.heard))
        tables.write(
            "laws", "reacted_ns", now.laws, np.where(now.reacted != seen.reacted, now.reacted + later_ns, now.reacted)
        )
        due_ns = tables.column("flows", "due_ns", flows)
        tables.write("flows", "due_ns", flows, np.where(due_ns < NEVER, due_ns + later_ns, NEVER))
        for name in ("sent_ns", "due_ns"):
            tables.write("signals", name, now.signals, tables.column("signals", name, now.signals) + later_ns)
        for name, more in sums.items():
            tables.write("queues", name, queues, now.sums[name] + times * more)
        return True


def blocks(starts: IntArray, lengths: IntArray) -> IntArray:
    """Numbers from each start on, so many."""
    begins = np.cumsum(lengths) - lengths
    found: IntArray = np.arange(int(lengths.sum())) + np.repeat(starts - begins, lengths)
    return found


def _signals(tables: Any, flows: IntArray) -> IntArray:
    """Rows of those that are under way, of each flow in the order in which they were sent."""
    firsts, counts = tables.column("flows", "first", flows), tables.column("flows", "signals", flows)
    found: IntArray = np.repeat(flows * SIGNALS, counts) + blocks(firsts, counts) % SIGNALS
    return found
