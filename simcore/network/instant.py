"""Events of a SimPy environment that cost little: plain callbacks now, later, or at the end of an instant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import simpy

ARRIVAL, LOOK, DECISION, BEGINNING, TRANSMISSION = range(2, 7)  # SimPy: 0 urgent, 1 normal; they come before these


class Environment(simpy.Environment):
    """One whose time moves on without an event, too; `share` is how much of the run is over, 0 where nobody knows."""

    share: Callable[[], float] = staticmethod(lambda: 0.0)

    def move_on(self, now_ns: int) -> None:
        """It is a later time now, before which nothing is to happen here."""
        self._now = now_ns


class _Call:
    """As much of an event as calls back, made in a fraction of the time."""

    __slots__ = ("callbacks",)
    _ok = True

    def __init__(self, callback: Callable[[simpy.Event], None]):
        self.callbacks = [callback]


class Timers:
    """Callbacks later, one event for all that are due at one time; they run in the order of their calls.

    What is called for the time that is running joins it. ASTRA-sim gives every NPU such a list.
    """

    def __init__(self, env: simpy.Environment):
        self._env = env
        self._due: dict[float, list[Callable[[], None]]] = {}

    def after(self, delay_ns: float, callback: Callable[[], None]) -> None:
        """Call back in `delay_ns`."""
        due = self._due.get(self._env.now + delay_ns)
        if due is None:
            self._due[self._env.now + delay_ns] = [callback]
            after(self._env, delay_ns, self._ring)
        else:
            due.append(callback)

    def _ring(self, _: simpy.Event) -> None:
        for callback in self._due[self._env.now]:  # grows while it runs
            callback()
        del self._due[self._env.now]


TimersOfNpus = defaultdict[int, Timers]
"""The timers of every NPU, by its number."""


def after(env: simpy.Environment, delay_ns: float, callback: Callable[[simpy.Event], None]) -> None:
    """Call back in `delay_ns`; callbacks of one time run in the order of these calls."""
    env.schedule(_Call(callback), delay=delay_ns)  # type: ignore[arg-type]


def on_arrival(env: simpy.Environment, delay_ns: int, callback: Callable[[simpy.Event], None]) -> None:
    """Call back in `delay_ns`, behind what ranks do by themselves then: a credit of that time allows nothing yet."""
    env.schedule(_Call(callback), ARRIVAL, delay_ns)  # type: ignore[arg-type]


def on_look(env: simpy.Environment, callback: Callable[[simpy.Event], None]) -> None:
    """Call back in this instant, when all that arrives and ends in it has done so, before what is decided of it."""
    env.schedule(_Call(callback), LOOK)  # type: ignore[arg-type]


def at_end_of_instant(
    env: simpy.Environment,
    delay_ns: int,
    callback: Callable[[simpy.Event], None],
    *,
    begins: bool = False,
    transmits: bool = False,
) -> None:
    """Call back in `delay_ns`, when everything else of that time has happened.

    What `transmits` comes behind all decisions of the instant, which may have more to send, and what these let begin.
    """
    priority = TRANSMISSION if transmits else BEGINNING if begins else DECISION
    env.schedule(_Call(callback), priority, delay_ns)  # type: ignore[arg-type]
