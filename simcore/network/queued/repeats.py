"""What repeats itself in an island of flows: periods that are left out, with the same answer to the last bit."""

from __future__ import annotations

from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.network.core import NEVER
from simcore.network.queued.flows import FINE, SIGNALS
from simcore.network.topology.fabric import IntArray

FIRST, LONGEST = 32, 256
"""So many steps are played before the first look; the longest period that is looked for."""
OF_FLOWS = ("loaded", "unsaid", "signals", "oldest", "current")
OF_QUEUES = ("share", "left", "chance", "use", "came", "own_next", "paused", "stands", "noted", "highest")
SUMS = ("still", "marked", "used")
OF_SIGNALS = ("parts", "waited_ns", "unmarked", "use")


class _Seen:
    """An island between two steps: `state` as it is beside its clock and its `sums`, and times that may move on."""

    def __init__(self, tables: Any, island: Any):
        self.now, self.rows = int(island.clock.now_ns), int(island.clock.rows)
        flows, queues = np.array(island.active, np.int64), np.array(island.used, np.int64)
        column = tables.column
        ats, hops = column("flows", "at", flows), column("flows", "hops", flows)
        self.said, self.signals = column("flows", "said_ns", flows), _signals(tables, flows)
        sent = column("signals", "sent_ns", self.signals)
        counts = column("flows", "signals", flows)
        oldest = np.full(len(flows), self.now)
        oldest[counts > 0] = sent[(np.cumsum(counts) - counts)[counts > 0]]
        lawful = column("flows", "law", flows) >= 0
        self.laws = column("flows", "law", flows)[lawful]
        self.reacted = column("laws", "reacted_ns", self.laws)
        self.sums = {name: column("queues", name, queues) for name in SUMS}
        self.injected = column("flows", "injected", flows)
        self.at_rest = np.array_equal(column("flows", "oldest", flows), column("flows", "current", flows))
        self.state: list[NDArray[Any]] = [
            *(column("flows", name, flows) for name in OF_FLOWS),
            column("hops", "tank", blocks(ats, hops)),
            np.minimum(self.now - self.said, column("flows", "period_ns", flows)),
            np.minimum(self.now - self.reacted, (self.now - oldest + 1)[lawful]),
            self.now - sent,
            column("signals", "due_ns", self.signals) - self.now,
            *(column("signals", name, self.signals) for name in OF_SIGNALS),
            *(column("queues", name, queues) for name in OF_QUEUES),
            *(column("laws", name, self.laws) for name in tables.names_of_laws),
        ]


class Look:
    """Now and then looks at an island whether it is as it was a period ago: then it is so until a message ends."""

    def __init__(self, tables: Any, island: Any):
        self._tables, self._island = tables, island
        self._period, self._wait = _period(tables, island), FIRST
        self._seen: _Seen | None = None
        self.due = FIRST if self._period else NEVER
        """After so many steps."""

    def after(self, steps: int, until_ns: int) -> bool:
        """So many steps have been played, and go on until then; whether some were left out."""
        self.due -= steps
        if self.due > 0:
            return False
        seen, now = self._seen, _Seen(self._tables, self._island)
        if seen is None:
            self._seen, self.due = now, self._period
            return False
        self._seen = None
        alike = (
            seen.at_rest
            and now.at_rest
            and all(np.array_equal(one, other) for one, other in zip(seen.state, now.state, strict=True))
        )
        alike = alike and seen.rows == now.rows
        self.due = self._wait = FIRST if alike else 2 * self._wait
        return alike and self._again(seen, now, until_ns)

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
        tables.write("flows", "said_ns", flows, now.said + later_ns * (now.said != seen.said))
        tables.write(
            "laws", "reacted_ns", now.laws, np.where(now.reacted != seen.reacted, now.reacted + later_ns, now.reacted)
        )
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


def _period(tables: Any, island: Any) -> int:
    """In how many steps all flows tell their laws what they have sent."""
    flows = np.array(island.active, np.int64)
    lawful = flows[tables.column("flows", "law", flows) >= 0]
    periods_ns = np.unique(tables.column("flows", "period_ns", lawful)).tolist()
    steps = lcm(*(-(-period_ns // int(island.clock.step_ns)) for period_ns in periods_ns))
    return steps if steps <= LONGEST else 0
