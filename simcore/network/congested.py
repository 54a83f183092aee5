"""Links that carry one transfer at a time.

`CutThrough` is native: a message's head goes on as soon as a link is its own, so serialisation is paid once, at the
slowest link, while every link of the route is occupied for its own serialisation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from simcore.network.clock import whole_steps
from simcore.network.faults import Outlook
from simcore.network.instant import ARRIVAL, TRANSMISSION, Environment, after
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.network.trees import Branch, Combination, Meeting, Reduction, branches
from simcore.timeline.events import LinkTable, QueueTable
from simcore.timeline.link_use import MOST_TIMES, LinkRows, Rows
from simcore.units import transfer_ns

Deliver = Callable[[], None]


class Network(Protocol):
    """Takes messages and delivers them when their last byte has arrived."""

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Deliver) -> None:
        """Send a message now. `key` orders messages that meet at one time; keys of one network must compare."""

    def table(self) -> LinkTable | None:
        """What every link carried so far, where links are modelled."""

    def notes(self) -> list[str]:
        """What is an approximation."""
        return []

    def stuck(self) -> list[str]:
        """Why nothing moves any more, where that is the network's doing."""
        return []


class TreeNetwork(Network, Protocol):
    """A network that copies messages on their way, and whose switches reduce."""

    def multicast(
        self, src: int, dst: Sequence[int], size_bytes: int, key: tuple[Any, ...], deliver: Callable[[int], None]
    ) -> None:
        """Send to many NPUs, over every link of the tree once; `deliver(npu)` for each."""

    def combine(self, src: int, peer: int, size_bytes: int, key: Any, switch: Reduction, deliver: Deliver) -> None:
        """Send one's part of a reduction to the switch between `src` and `peer`, and deliver what comes back."""


class Path(NamedTuple):
    """A route with what its links need: whole nanoseconds of latency and bytes per second."""

    links: tuple[int, ...]
    steps_ns: tuple[int, ...]
    rates: tuple[float, ...]


class Arriving(Protocol):
    """What is delivered at `tail_ns`."""

    key: Any
    ends: tuple[int, int]
    tail_ns: int

    @property
    def deliver(self) -> Deliver:
        """What is called then."""


class _Message:
    """On its way: `hop` counts the links behind it, `tail_ns` is when its last byte reaches the node it is at."""

    __slots__ = ("deliver", "ends", "hop", "key", "path", "reached", "size_bytes", "tail_ns")

    def __init__(self, key: Any, ends: tuple[int, int], size_bytes: int, path: Path, deliver: Deliver, now_ns: int):
        self.key, self.ends, self.size_bytes, self.path, self.deliver = key, ends, size_bytes, path, deliver
        self.hop, self.tail_ns = 0, now_ns
        self.reached: Callable[[int], None] | None = None


_by_key = attrgetter("key", "ends")


class LinkNetwork(Network):
    """A network of links that counts what they carry, and finds routes.

    `by_event`: of messages that come at one time it serves first what was sent first in the simulation's order.
    `foldable`: representatives of links can stand for all. `in_parts`: what shares no link with others at a time,
    directly or not, may be played without them. `in_columns`: `network.core` gives the same times. Of both each class
    says so of itself alone. `bears_faults`: links may be slow or down for a while. `has_trees`: it is a `TreeNetwork`.
    `has_queues`: it looks at what the ports of the topology say. `ties_turn`: of equal keys those are served first that
    `LinkGraph.order` says, which stays when NPUs turn.
    """

    foldable: ClassVar[bool] = True  # a route may use one link several times, see `network.parts`
    by_event: ClassVar[bool] = False
    in_columns: ClassVar[bool] = False
    bears_faults: ClassVar[bool] = False
    has_trees: ClassVar[bool] = False
    in_parts: ClassVar[bool] = False
    has_queues: ClassVar[bool] = False
    ties_turn: ClassVar[bool] = False

    def __init__(self, env: Environment, links: LinkGraph):
        self.env, self.links = env, links
        self._paths: dict[tuple[int, int], Path] = {}
        self._rates: list[float] = links.bandwidth_bytes_per_s.tolist()
        self._latencies: list[float] = links.latency_ns.tolist()
        self._size_bytes = [0] * len(links)
        self._busy_ns = [0] * len(links)
        self._times = Rows(3, MOST_TIMES + 1 if links.timed else 0)
        self._deliveries: dict[int, list[Arriving]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("in_parts", "in_columns"):  # one made of another may take other times, and remember more
            setattr(cls, name, vars(cls).get(name, False))

    @classmethod
    def on(cls, topology: Topology) -> type[LinkNetwork]:
        """The class that plays such links: another one where less, or more, has to be played."""
        return cls

    @classmethod
    def among(cls, links: LinkGraph, src: IntArray, dst: IntArray) -> IntArray:
        """The links that some messages may take."""
        return links.routes(src, dst).links

    def _path(self, src: int, dst: int) -> Path:
        """The way from `src` to `dst`."""
        path = self._paths.get((src, dst))
        if path is None:
            path = self._paths[src, dst] = self._along(self.links.route(src, dst))
        return path

    def _along(self, route: tuple[int, ...]) -> Path:
        """A route with what its links need."""
        steps = whole_steps([self._latencies[link] for link in route])
        return Path(route, steps, tuple(self._rates[link] for link in route))

    def counts(self) -> tuple[IntArray, IntArray]:
        """Bytes carried by every link, and how long it was occupied."""
        return np.array(self._size_bytes, np.int64), np.array(self._busy_ns, np.int64)

    def times(self) -> LinkRows | None:
        """Rows of (link, begin, how long) of every occupation; None where they are not kept, or were too many."""
        return LinkRows.of(self._times.table()) if self._times.room else None

    def queues(self) -> QueueTable | None:
        """What the queue in front of every link did so far, where there are queues."""
        return None

    def remembers(self, since_ns: int) -> bool:
        """Whether anything that was sent before a time matters to what comes then."""
        return False

    @classmethod
    def notes_on(cls, curve_rows: int) -> list[str]:
        """What is an approximation, where curves of queues have so many rows."""
        return []

    def table(self) -> LinkTable:
        """What every link carried so far."""
        return self.links.table(*self.counts(), self.times())

    def _count(self, link: int, size_bytes: int, start_ns: int, end_ns: int) -> None:
        """A message occupies a link."""
        self._size_bytes[link] += size_bytes
        self._busy_ns[link] += end_ns - start_ns
        self._times.add(link, start_ns, end_ns - start_ns)

    def _finish(self, message: Arriving, now_ns: int) -> None:
        """The last byte arrives at `message.tail_ns`."""
        batch = self._deliveries.get(message.tail_ns)
        if batch is None:
            self._deliveries[message.tail_ns] = [message]
            after(self.env, message.tail_ns - now_ns, self._deliver, ARRIVAL)
        else:
            batch.append(message)

    def _deliver(self) -> None:
        """Hand over everything that arrives now."""
        batch = self._deliveries.pop(self.env.now)
        if len(batch) > 1:
            batch.sort(key=_by_key)
        for message in batch:
            message.deliver()


class CutThrough(LinkNetwork):
    """First come, first served on every link; who comes at the same time is served in the order of the keys.

    Of equal keys who has fewer links behind goes first, then the lower sender: an order that stays when all NPUs of a
    ring move on by one, so that ranks that do the same fare the same.

    A message that waits for a link blocks none of those behind it (routers have room), so no routing deadlocks.
    Arrivals of one time are gathered until nothing else happens at that time, so the order in which the
    simulation happened to call `send` never matters.

    >>> from simcore.network.topology.model import Dimension, Topology
    >>> env = Environment()
    >>> network = CutThrough(env, LinkGraph(Topology((Dimension("Ring", 8, 1e9, 10.0),))))
    >>> network.send(0, 2, 1000, 0, lambda: print("over two links at", env.now))
    >>> network.send(1, 2, 1000, 1, lambda: print("behind it at", env.now))
    >>> env.run()
    behind it at 1010
    over two links at 2010
    """

    in_columns = in_parts = True
    bears_faults = True
    has_trees = True

    @classmethod
    def on(cls, topology: Topology) -> type[LinkNetwork]:
        """With faults, links that look at them."""
        return FaultyCutThrough if topology.faults else cls

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        self._free_ns = [0] * len(links)
        self._occupied_ns = lru_cache(maxsize=1 << 16)(transfer_ns)  # sizes are few
        self._arrivals: dict[int, list[_Message]] = {}
        self._meetings: dict[Any, Meeting] = {}

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Deliver) -> None:
        """As `Network.send`."""
        self._depart(_Message(key, (src, dst), size_bytes, self._path(src, dst), deliver, self.env.now))

    def _depart(self, message: _Message) -> None:
        now_ns = self.env.now
        if message.path.links:
            self._arrive(message, now_ns, now_ns)
        else:
            self._finish(message, now_ns)

    def multicast(
        self, src: int, dst: Sequence[int], size_bytes: int, key: tuple[Any, ...], deliver: Callable[[int], None]
    ) -> None:
        """As `TreeNetwork.multicast`: a copy goes on as soon as its head is there and its link free."""
        (made, at_root), wanted = branches(self.links, src, dst), set(dst)

        def go_on(numbers: Sequence[int], tail_ns: int) -> None:
            for number in numbers:
                branch = made[number]
                further = partial(reached, branch)
                self._relay(branch.link, branch.step_ns, size_bytes, (*key, number), tail_ns, further)

        def reached(branch: Branch, tail_ns: int) -> None:
            if branch.node in wanted:
                after(self.env, tail_ns - self.env.now, partial(deliver, branch.node))
            go_on(branch.further, tail_ns)

        go_on(at_root, self.env.now)

    def combine(self, src: int, peer: int, size_bytes: int, key: Any, switch: Reduction, deliver: Deliver) -> None:
        """As `TreeNetwork.combine`: when the last has come, the switch reduces byte by byte, and sends down to all."""
        there, back = self._path(src, peer), self._path(peer, src)
        own = Combination(key, there.links[0], there.steps_ns[0], back.links[-1], back.steps_ns[-1], deliver)
        meeting = self._meetings.setdefault(switch.name, Meeting())

        def at_switch(tail_ns: int) -> None:
            meeting.parts.append(own)
            meeting.tail_ns = max(meeting.tail_ns, tail_ns)
            if len(meeting.parts) == switch.parts:
                del self._meetings[switch.name]
                reduced_ns = self.env.now + switch.reduced_ns(size_bytes)
                last_ns = max(meeting.tail_ns, reduced_ns) + switch.latency_ns
                after(self.env, switch.latency_ns, partial(down, last_ns))

        def down(tail_ns: int) -> None:
            for each in sorted(meeting.parts, key=lambda one: one.key):
                self._relay(each.down, each.down_ns, size_bytes, each.key, tail_ns, partial(through, each))

        def through(part: Combination, tail_ns: int) -> None:
            after(self.env, tail_ns - self.env.now, part.deliver)

        self._relay(own.up, own.up_ns, size_bytes, key, self.env.now, at_switch)

    def _relay(
        self, link: int, step_ns: int, size_bytes: int, key: Any, tail_ns: int, reached: Callable[[int], None]
    ) -> None:
        """Send over one link; `reached(tail_ns)` is called when the head is at its end, with the last byte's time."""
        path = Path((link,), (step_ns,), (self._rates[link],))
        message = _Message(key, (link, link), size_bytes, path, _nothing, tail_ns)
        message.reached = reached
        self._arrive(message, self.env.now, self.env.now)

    def _arrive(self, message: _Message, at_ns: int, now_ns: int) -> None:
        """The head reaches the next link of its route at `at_ns`."""
        batch = self._arrivals.get(at_ns)
        if batch is None:
            self._arrivals[at_ns] = [message]
            after(self.env, at_ns - now_ns, self._serve, TRANSMISSION)
        else:
            batch.append(message)

    def _serve(self) -> None:
        """Give links to the heads that are there now."""
        now_ns = self.env.now
        waiting = [
            (message.key, message.hop, message.ends, n, message) for n, message in enumerate(self._arrivals.pop(now_ns))
        ]
        heapify(waiting)
        while waiting:
            key, _hop, ends, number, message = heappop(waiting)
            head_ns = self._advance(message, now_ns)
            if message.hop == len(message.path.links) and message.reached:
                after(self.env, head_ns - now_ns, partial(message.reached, message.tail_ns))
            elif message.hop == len(message.path.links):
                self._finish(message, now_ns)
            elif head_ns == now_ns:
                heappush(waiting, (key, message.hop, ends, number, message))
            else:
                self._arrive(message, head_ns, now_ns)

    def _advance(self, message: _Message, now_ns: int) -> int:
        """Over one link; when the head reaches the next one."""
        hop = message.hop
        link, step_ns = message.path.links[hop], message.path.steps_ns[hop]
        start_ns = max(self._free_ns[link], now_ns)
        end_ns = self._free_ns[link] = self._end_ns(link, start_ns, message.size_bytes, message.path.rates[hop])
        self._count(link, message.size_bytes, start_ns, end_ns)
        message.tail_ns = max(message.tail_ns, end_ns) + step_ns
        message.hop += 1
        head_ns: int = start_ns + step_ns
        return head_ns

    def _end_ns(self, link: int, start_ns: int, size_bytes: int, rate: float) -> int:
        """When a link is free again that takes a message now."""
        return start_ns + self._occupied_ns(size_bytes, rate)


def _nothing() -> None:
    """What nobody waits for."""


class FaultyCutThrough(CutThrough):
    """`CutThrough` over links that are slow or down for a while, as `network.faults` says."""

    foldable = False

    def __init__(self, env: Environment, links: LinkGraph):
        super().__init__(env, links)
        self._outlook = Outlook(links)
        self._src: list[int] = links.src.tolist()
        self._dst: list[int] = links.dst.tolist()

    def table(self) -> LinkTable:
        """What every link carried so far, and what the faults did."""
        return replace(super().table(), faults=self._outlook.counts())

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Deliver) -> None:
        """As `Network.send`, over the way that is there now, or as soon as there is one."""
        now_ns, path = self.env.now, self._path(src, dst)
        way = self._outlook.around(path.links, src, dst, now_ns)
        if way is None:
            again = partial(self.send, src, dst, size_bytes, key, deliver)
            after(self.env, self._outlook.next_change(now_ns) - now_ns, again)
            return
        path = path if way == path.links else self._along(way)
        self._depart(_Message(key, (src, dst), size_bytes, path, deliver, now_ns))

    def _advance(self, message: _Message, now_ns: int) -> int:
        """As `CutThrough`, around links that are down."""
        down = self._outlook.down(message.path.links[message.hop], now_ns)
        if down and not self._lead_around(message, now_ns):
            return self._outlook.next_change(now_ns)
        return super()._advance(message, now_ns)

    def _end_ns(self, link: int, start_ns: int, size_bytes: int, rate: float) -> int:
        return self._outlook.end_ns(link, start_ns, size_bytes, rate)

    def _lead_around(self, message: _Message, now_ns: int) -> bool:
        """Another way from the node where the head is; False when there is none for now."""
        behind, ahead = message.path.links[: message.hop], message.path.links[message.hop :]
        way = self._outlook.around(ahead, self._src[ahead[0]], self._dst[ahead[-1]], now_ns)
        if way is None:
            return False
        message.path = self._along(behind + way)
        return True
