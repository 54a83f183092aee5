"""What happens when: plain callbacks now, later, or at the end of an instant, and SimPy's events among them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, cast

import simpy

from simcore.network.core import NEVER

URGENT, NORMAL, ARRIVAL, LOOK, DECISION, BEGINNING, TRANSMISSION = range(7)  # the first two are SimPy's
"""In which order things of one time happen. Messages arrive behind what ranks do by themselves then: a credit of that
time allows nothing yet. Who looks does so when all that arrives and ends in an instant has done so. Decisions fall when
everything else of it has happened. What transmits comes behind all of them, and behind what they let begin.
"""

Callback = Callable[[], object]
Entry = tuple[Any, int, int, Callback]


class Environment(simpy.Environment):
    """SimPy's processes in an order of their own: `calls` is a heap of (time, priority, number, what is called).

    Times are whole nanoseconds but for what ASTRA-sim 1.0's memory adds. `entry` is what happens now. Whoever knows
    that nothing is to happen before a time may set `now`. `share` is how much of the run is over, 0 where nobody knows.
    """

    now: int = 0
    share: Callable[[], float] = staticmethod(lambda: 0.0)

    def __init__(self, now_ns: int = 0):
        super().__init__()
        self.now = now_ns
        self.calls: list[Entry] = []
        self.entry: Entry = now_ns, -1, 0, self.peek
        self.numbers = count()

    def schedule(self, event: simpy.Event, priority: int = NORMAL, delay: float = 0) -> None:
        """As SimPy's."""
        call: Callback = partial(_process, event)
        heappush(self.calls, (self.now + delay, priority, next(self.numbers), call))

    def peek(self) -> int:
        """When something happens next, `NEVER` where nothing does that can be counted."""
        return min(self.calls[0][0], NEVER) if self.calls else NEVER

    def step(self) -> None:
        """What happens next."""
        self.entry = entry = heappop(self.calls)
        self.now = entry[0]
        entry[3]()

    def run(self, until: Any = None) -> None:
        """All that happens before a time; to the end where none is given."""
        calls, end_ns = self.calls, NEVER if until is None else until
        if until is not None:  # `peek` looks no further; this is not called
            heappush(calls, (end_ns, -1, 0, self.peek))
        while calls and calls[0][0] < end_ns:
            self.entry = entry = heappop(calls)
            self.now = entry[0]
            entry[3]()
        if until is not None:
            heappop(calls)
            self.now = end_ns


def _process(event: simpy.Event) -> None:
    """Tell those that wait for an event."""
    callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
    for callback in callbacks:
        callback(event)
    if not event.ok and not event.defused:
        raise cast("BaseException", event.value)


def at_once(env: Environment, event: simpy.Event, value: object) -> None:
    """Whoever waits for an event goes on before anything else."""
    event._ok, event._value = True, value
    env.schedule(event, priority=URGENT)


class Timers:
    """Callbacks later, one call for all that are due at one time; they run in the order of their calls.

    What is called for the time that is running joins it. ASTRA-sim gives every NPU such a list.
    """

    def __init__(self, env: Environment):
        self._env = env
        self._due: dict[int, list[Callback]] = {}

    def after(self, delay_ns: int, callback: Callback) -> None:
        """Call back in `delay_ns`."""
        time_ns = self._env.now + delay_ns
        due = self._due.get(time_ns)
        if due is None:
            self._due[time_ns] = [callback]
            heappush(self._env.calls, (time_ns, NORMAL, next(self._env.numbers), self._ring))
        else:
            due.append(callback)

    def _ring(self) -> None:
        for callback in self._due[self._env.now]:  # grows while it runs
            callback()
        del self._due[self._env.now]


TimersOfNpus = defaultdict[int, Timers]
"""The timers of every NPU, by its number."""


def after(env: Environment, delay_ns: float, callback: Callback, priority: int = NORMAL) -> None:
    """Call back in `delay_ns`; callbacks of one time and priority run in the order of these calls."""
    heappush(env.calls, (env.now + delay_ns, priority, next(env.numbers), callback))
