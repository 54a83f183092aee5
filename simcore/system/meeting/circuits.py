"""Phases over optical circuits: a switch has one configuration in place, and changes it when nothing is under way."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from simcore.errors import InputError, Location
from simcore.network.instant import BEGINNING, Environment, after
from simcore.network.topology.model import Circuits, Topology
from simcore.system.streams import Stream, StreamPhase
from simcore.system.transport import Done, Transport
from simcore.timeline.events import CircuitRun, LinkTable
from simcore.workload.model import CollectiveKind


class Switched(Transport):
    """Transport with a transport for each configuration of a topology's circuits, its own first.

    What crosses none of the dimensions that are switched never waits. All else asks for its configuration, first come,
    first served; those that ask in one instant go in the order of configurations, the one in place first. All groups
    of a switched dimension change together.
    """

    def __init__(
        self,
        env: Environment,
        ranks: Sequence[Sequence[int]],
        transports: Sequence[Transport],
        topology: Topology,
        circuits: Circuits,
    ):
        super().__init__(env, ranks, transports[0].plans.costs)
        self.parts, self._topology, self._circuits = transports, topology, circuits
        self.names = (topology.name, *(other.name for other in circuits.others))
        self._switched = circuits.switched(topology)
        self._known: dict[tuple[StreamPhase, CollectiveKind], int | None] = {}
        self._first = defaultdict[StreamPhase, int](int)  # by the first collective of a phase
        self._asked: list[tuple[int, Callable[[], None]]] = []  # in this instant
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._under_way, self._settling, self._changing = 0, False, False
        self._changes = [(0, 0)]  # since when which configuration is in place

    def start(self, streams: Mapping[int, Stream], done: Done) -> None:
        """Begin a phase as soon as its circuits are in place."""
        npu_class, stream = next(iter(streams.items()))
        wanted = self._configuration(stream.phase, stream.dataset.request.kind, self._ranks[npu_class][0])
        if wanted is None:
            self.parts[0].start(streams, done)
        else:
            begin = partial(self.parts[wanted].start, streams, partial(self._over, done))
            self._ask(wanted, len(streams), begin)

    def carry(self, src: int, dst: int, size_bytes: int, key: tuple[int, ...], deliver: Callable[[], None]) -> None:
        """Deliver a message between two NPUs, over the topology's own circuits where it crosses them."""
        send = partial(self.parts[0].carry, src, dst, size_bytes, key)
        if self._crossed([src, dst]) & self._switched:
            self._ask(0, 1, partial(send, partial(self._over, deliver)))
        else:
            send(deliver)

    def bytes_sent(self, npu_class: int, phase: StreamPhase) -> int:
        """What one NPU sends in a phase."""
        return self.parts[self._first[phase]].bytes_sent(npu_class, phase)

    def links(self) -> LinkTable | None:
        """What every link of every configuration carried."""
        own, *others = (transport.links() for transport in self.parts)
        if own is None:
            return None
        tables = [(table, f" ({name})") for table, name in zip(others, self.names[1:], strict=True) if table]
        named = [replace(table, src=[end + name for end in table.src], dst=[end + name for end in table.dst])
                 for table, name in tables]  # fmt: skip
        return LinkTable.joined([own, *named])

    def stuck(self) -> list[str]:
        """As `Transport.stuck`, in any configuration."""
        return [line for transport in self.parts for line in transport.stuck()]

    def told(self) -> CircuitRun:
        """Which circuits were in place when."""
        return CircuitRun(self.names, self._circuits.delay_ns, tuple(self._changes))

    def _configuration(self, phase: StreamPhase, kind: CollectiveKind, npu: int) -> int | None:
        """The configuration that a phase of a collective needs, None = whatever is in place."""
        key = phase, kind
        if key not in self._known:
            crossed, number = self._crossed(phase.lane.dim.members(npu).tolist()), self._circuits.number(kind)
            if number and crossed & self._switched and crossed - self._switched:
                message = f"the {kind} crosses dimensions that are switched and others at once"
                expected = "algorithms that go dimension by dimension, or the file's own circuits"
                raise InputError.at(Location(self._topology.path), message, expected=expected)
            self._known[key] = number if crossed & self._switched else None
            self._first.setdefault(phase, self._known[key] or 0)
        return self._known[key]

    def _crossed(self, npus: Sequence[int]) -> set[int]:
        """The dimensions in which some NPUs differ."""
        ids, dims = np.array(npus), enumerate(zip(self._topology.dims, self._topology.strides, strict=True))
        return {index for index, (dim, stride) in dims if np.ptp(ids // stride % dim.npus)}

    # Who sends, and when circuits change.

    def _ask(self, wanted: int, count: int, begin: Callable[[], None]) -> None:
        def go() -> None:
            self._under_way += count
            begin()

        self._asked.append((wanted, go))
        self._settle_later()

    def _over(self, tell: Callable[..., None], *what: Any) -> None:
        """An NPU is through a phase, or a message is there."""
        self._under_way -= 1
        tell(*what)
        self._settle_later()

    def _settle_later(self) -> None:
        if not self._settling:
            self._settling = True
            after(self._env, 0, self._settle, BEGINNING)

    def _settle(self) -> None:
        """Begin what has its circuits, up to the first that has not; change them for that one when nobody sends."""
        self._settling, in_place = False, self._changes[-1][1]
        self._waiting.extend(sorted(self._asked, key=lambda each: (each[0] != in_place, each[0])))
        self._asked.clear()
        while self._waiting and not self._changing and self._waiting[0][0] == in_place:
            self._waiting.popleft()[1]()
        if self._waiting and not self._under_way and not self._changing:
            self._changing = True
            after(self._env, self._circuits.delay_ns, self._changed)

    def _changed(self) -> None:
        self._changing = False
        self._changes.append((int(self._env.now), self._waiting[0][0]))
        self._settle_later()
