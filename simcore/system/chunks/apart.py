"""ASTRA-sim 1.0's events one by one: every NPU plays its own messages, has its own queues, and acts in its turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappush
from operator import itemgetter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from simcore.network.instant import Environment, Timers, after
from simcore.system.chunks.cut import Cutting, PhaseMaker
from simcore.system.groups import Delay
from simcore.system.plans.automaton import Player, automata
from simcore.system.plans.maker import Costs
from simcore.system.streams import Chunks, Request, Stream, StreamPhase, Turns
from simcore.system.transport import CongestionFree, Done, Played, Seat

Then = Callable[[Turns], object]
"""What follows when NPUs have done something, in some order."""


class Apart(Played):
    """Transport for NPUs that act for themselves; a chunk begins when all have issued it, and goes on when all may.

    All happens in the original's order. What has no bytes is reduced, too.
    """

    def __init__(self, env: Environment, ranks: Sequence[Sequence[int]], delay: Delay, costs: Costs):
        super().__init__(env, ranks, CongestionFree(env, delay), costs, barrier=True)
        self.timers.default_factory = partial(Steps, env)
        self._issued = defaultdict[tuple[int, int], int](int)  # by how many NPUs, each chunk
        self._held = defaultdict[tuple[int, int], list[tuple[int, Stream, Done]]](list)

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:  # type: ignore[override]
        """Begin a phase, the first one when all NPUs have issued the chunk."""
        for npu_class, stream in streams.items():
            if stream.at or self._issued[stream.key] == len(self._ranks):
                self._start(npu_class, stream, done)
            else:
                self._held[stream.key].append((npu_class, stream, done))

    def issued(self, stream: Stream) -> None:
        """An NPU has issued a chunk: the last one lets it begin wherever there is room, in the order of NPUs."""
        self._issued[stream.key] += 1
        if self._issued[stream.key] == len(self._ranks):
            for held in sorted(self._held.pop(stream.key, ()), key=itemgetter(0)):
                self._start(*held)

    def places(self, rules: Cutting) -> Sequence[Place]:
        """Those of the NPUs."""
        maker = MakerOfAll(rules)
        return [Place(self.timers[npu], Turns(npus=np.array([npu])), maker) for npu, *_ in self._ranks]

    def _automata(self, seat: Seat, phase: StreamPhase, finished: Callable[[], None]) -> Sequence[Player]:
        sizes = [each.size_bytes for each in seat.plan.expanded or seat.plan.transfers]
        plan, least_bytes = seat.plan, phase.lane.dim.size
        if phase.data_bytes < least_bytes:
            plan = self.plans.of(replace(phase, data_bytes=least_bytes), 0)

        def post(number: int, peer: int, _: int) -> None:
            self._post(seat, number, peer, sizes[number])

        return automata(plan, seat.position, self._pay(seat, phase), partial(after, self._env), post, finished)


class Place(Struct, frozen=True):
    """Where an NPU acts that does so for itself: its list of what it does at a time, and what cuts its collectives."""

    timers: Timers
    turns: Turns
    maker: PhaseMaker

    def after(self, delay_ns: int, then: Then) -> None:
        """Do something later."""
        self.timers.after(delay_ns, partial(then, self.turns))


class MakerOfAll(PhaseMaker):
    """As `PhaseMaker`, of NPUs that act for themselves: all get what the first of them gets for the same collective."""

    def __init__(self, rules: Cutting):
        super().__init__(0, rules)
        self._made, self._asked = list[Chunks](), defaultdict[int, int](int)

    def split(self, request: Request, now_ns: int, order: Turns) -> Chunks:
        """The phases of every chunk of an NPU's next collective."""
        self._issue(now_ns, order)
        return self._next(order.first, lambda: tuple(self._split(request)))

    def pass_over(self, request: Request, now_ns: int, order: Turns) -> None:
        """A collective that nobody takes part in still takes its turn."""
        self._issue(now_ns, order)

        def turn() -> Chunks:
            self._pass_over(request)
            return ()

        self._next(order.first, turn)

    def _next(self, npu: int, make: Callable[[], Chunks]) -> Chunks:
        number = self._asked[npu]
        self._asked[npu] += 1
        if number == len(self._made):
            self._made.append(make())
        return self._made[number]

    def _issue(self, now_ns: int, order: Turns) -> None:
        if order.first == 0:  # who clears Themis' loads
            super()._issue(now_ns, order)


class Steps(Timers):
    """What an NPU does at a time, one thing after the other: what follows from one comes before the next."""

    def _ring(self) -> None:
        env, due = self._env, self._due[self._env.now]
        if due:
            due.pop(0)()
        if due or (env.calls and env.calls[0] < env.entry):  # what follows from the last one may join it
            heappush(env.calls, env.entry)  # in the same place
        else:
            del self._due[env.now]
