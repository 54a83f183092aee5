"""Islands: flows that share links, and how they are played."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simcore.network.compiled import compiled_heaps, installed, kept
from simcore.network.core import NEVER
from simcore.network.queued import flows, laws, noted, tanks
from simcore.network.queued.alike import alike, mixed
from simcore.network.queued.compiled import NOTED, Tables, columns_of, with_laws
from simcore.network.queued.flow_tables import SIGNALS, TABLES, Message, Queue, State, Tail
from simcore.network.queued.network import Arrival
from simcore.network.queued.repeats import OF_QUEUES, Look, blocks
from simcore.network.queued.steady import HINT
from simcore.network.queued.tables import NOBODY
from simcore.network.topology.fabric import IntArray
from simcore.progress import meter

TO_COMPILE, TO_LOAD, TO_MOVE = 2_000_000, 130_000, 500
"""So many steps of tanks take as long as to compile, to load what was compiled, and to make arrays of lists."""
FEW = 32
"""Steps that are played in lists before somebody looks whether to compile."""
ROWS = 1 << 16
"""So many steps of links are played before what was noted of them is taken, at least one of each."""
OF_LISTS, OF_ENTRY = 100, 4
"""Steps in lists take so many times as long; to enter takes as long as so many of these."""
PLAYED = ("active", "lanes", "taken", "used")
COUNTED = ("peak_bytes", "still_ns", "stops", "marks")
OF_FLOWS = ("kind", "rules", "adaptive", "line", "idle_ns", "period_ns", "packet_bytes", "ways", "loaded")
OF_WAYS = ("kind", "latency_ns", "longer", "fork", "join", "part", "loaded", "unsaid")
OF_HOPS = ("tank", "gone", "changes", "bends")
OF_MESSAGES = ("missing", "ends_ns")
OF_TAILS = ("hop", "ahead", "offset_ns", "late_ns")


Followers = dict[int, IntArray]


@dataclass(eq=False)
class Island:
    """Flows that share links, with a clock of their own; `open` messages are on their way.

    `active` flows, their `lanes` of so many `tanks`, and `used` links are played. Where one stands for others,
    `of_flows` and `of_links` say for whom.
    """

    counts: Any
    flows: dict[int, None] = field(default_factory=dict)
    links: dict[int, None] = field(default_factory=dict)
    active: Any = ()
    lanes: Any = ()
    taken: Any = ()
    used: Any = ()
    tanks: int = 0
    open: int = 0
    begun: list[tuple[Any, int, int, Arrival]] = field(default_factory=list)  # in this instant
    ends: list[tuple[int, int]] = field(default_factory=list)  # when messages are there, and whose, in order
    wakes_ns: int = NEVER
    folded: _Folded | None = None
    look: Any = None
    of_flows: Followers = field(default_factory=dict)
    of_links: Followers = field(default_factory=dict)

    @property
    def clock(self) -> Any:
        """Its time."""
        return self.counts[0]


@dataclass
class _Folded:
    """All flows, their ways and links, who stands for each of them, and what links had counted before."""

    flows: IntArray
    ways: IntArray
    links: IntArray
    like_flows: IntArray
    like_ways: IntArray
    like_links: IntArray
    counted: dict[str, IntArray]


class Islands(Tables):
    """The tables of flows: lists, which become arrays with compiled functions as soon as that is repaid."""

    core = flows
    kinds = TABLES | {"laws": laws.Law}
    noted = NOTED | {"left": 2}
    least_hops, least_work = 256, 3_000_000  # steps of hops that are worth a look for what is alike
    in_lists = 0  # steps of tanks that were played so in this process

    def __init__(self, state: State):
        super().__init__(state)
        self._links = len({queue.wire for queue in state.queues})
        self._lasts: list[int] = []
        """The last message of each flow."""
        self._played = self._kind = 0

    def take(self, name: str, followers: Followers | None = None) -> IntArray:
        """What was noted, of all for whom one stands."""
        found = super().take(name)
        if not followers or not len(found):
            return found
        own = [followers[number] for number in found[:, 0].tolist()]
        found = np.repeat(found, [len(each) for each in own], axis=0)
        found[:, 0] = np.concatenate(own)
        return found

    def pledge(self, number: int, parts: int, now_ns: int) -> None:
        """One more message of a flow, behind all others."""
        flow = self.state.flows[number]
        if flow.injected == flow.pledged:
            flow.said_ns = flow.asked_ns = now_ns - flow.period_ns  # the first packet tells
            if not flow.signals:  # what has not been told of has come back since
                flow.acked, flow.unsaid, flow.unmarked = flow.injected, 0, 0
                unsaid = np.arange(flow.at, flow.at + flow.ways)
                self.write("ways", "unsaid", unsaid, np.zeros(len(unsaid), np.int64))
        ways = int(flow.ways)
        flow.pledged += parts if flow.adaptive else -(-parts // ways) * ways
        tails = self.add("tails", *(Tail() for _ in range(ways)))
        message = self.add("messages", Message(int(flow.pledged), tails, ways))
        if flow.oldest < 0:
            flow.oldest = message
        else:
            self.state.messages[self._lasts[number]].next = message
        if flow.current < 0:
            flow.current = message
        self._lasts += [NOBODY] * (number + 1 - len(self._lasts))
        self._lasts[number] = message

    def _channels(self, links: IntArray) -> IntArray:
        """Rows of all channels of links, the first ones of all before the second ones."""
        found: IntArray = (np.arange(0, len(self.state.queues), self._links)[:, None] + links).ravel()
        return found

    def ways_of(self, flows: IntArray) -> IntArray:
        """Numbers of the ways of flows."""
        return blocks(self.column("flows", "at", flows), self.column("flows", "ways", flows))

    def hops_of(self, ways: IntArray) -> IntArray:
        """Numbers of the hops of ways."""
        return blocks(self.column("ways", "at", ways), self.column("ways", "hops", ways))

    # Islands.

    def idle(self, island: Island) -> list[int]:
        """Flows that have nothing to send, nor anything on its way."""
        numbers = np.fromiter(island.flows, np.int64, len(island.flows))
        over = (self.column("flows", "oldest", numbers) < 0) & (self.column("flows", "loaded", numbers) == 0)
        awaited = {number for _, number in island.ends}
        return [number for number in numbers[over].tolist() if number not in awaited]

    def enter(self, island: Island) -> None:
        """It is known which flows and links play; one of many that are alike stands for all."""
        island.clock.moves = 1
        flows = np.array(sorted(island.flows), np.int64)
        links = self._channels(np.array(sorted(island.links), np.int64))
        ahead = self.column("flows", "pledged", flows) - self.column("flows", "injected", flows)
        steps = ahead / (self.column("flows", "line", flows) * int(island.clock.step_ns))
        island.active, island.lanes, island.used = flows, self.ways_of(flows), links
        self._add(OF_ENTRY * len(self.hops_of(island.lanes)))
        self._compile()
        self._fold(island, float(steps.max(initial=0)))
        self._follow_lanes(island)
        island.tanks = len(self.hops_of(island.lanes))
        if not self._lengths:
            for name in PLAYED:
                setattr(island, name, getattr(island, name).tolist())
        self.core.begin(self._of(island))
        island.look = Look(self, island)

    def _follow_lanes(self, island: Island) -> None:
        """Which ways each flow plays: later flows have later ways."""
        lanes, flows = island.lanes, island.active
        bounds = np.searchsorted(lanes, self.column("flows", "at", flows))
        self.write("flows", "lane", flows, bounds)
        counts = np.diff(np.append(bounds, len(lanes)))
        self.write("flows", "lanes", flows, counts)
        choosing = self.column("flows", "adaptive", flows) > 0
        island.taken = np.zeros(int(counts[choosing].max(initial=0)), np.int64)
        at, parts = self.column("ways", "at", lanes), self.column("ways", "part", lanes)
        begins = self.column("hops", "weight", at) * parts * (self.column("ways", "fork", lanes) > 0)
        self.write("flows", "begins", flows, np.add.reduceat(begins, bounds) if len(lanes) else bounds)

    def play(self, island: Island, until_ns: int) -> bool:
        """Whether there is more to be played, once somebody has looked at what was noted."""
        self._compile()
        most = min(max(ROWS // len(island.used), 1), island.look.due, NEVER if self._lengths else FEW)
        span_ns = int(island.clock.step_ns)
        steps = int(self.core.play(self._of(island), until_ns, most, span_ns))
        self._add(steps * island.tanks)
        if island.look.after(steps, until_ns):
            self.core.play(self._of(island), until_ns, 0, span_ns)
        return bool(steps == most)

    def _add(self, steps: int) -> None:
        """Of tanks, so many more were played."""
        self._played += steps
        Islands.in_lists += 0 if self._lengths else steps

    def _compile(self) -> None:
        """Play on compiled where that is repaid."""
        if not installed():
            if self._played >= TO_COMPILE:
                meter().hint = HINT
        elif self._played >= TO_MOVE and not self._lengths and self._repaid:
            nobody = np.zeros(0, np.int64)
            self._become(_compiled_core(), _Arrayed, active=nobody, lanes=nobody, taken=nobody, used=nobody)

    @property
    def _repaid(self) -> bool:
        """Whether what is compiled is there, or it would take no longer than what was played in lists."""
        return bool(_compiled_core.cache_info().currsize) or self.in_lists >= (TO_LOAD if kept(flows) else TO_COMPILE)

    def cut(self, island: Island, now_ns: int) -> None:
        """A step that ends now, where anything moves."""
        self.core.cut(self._of(island), now_ns, int(island.clock.step_ns))
        island.clock.now_ns, island.clock.since_look = now_ns, 0
        island.look = Look(self, island)

    def _of(self, island: Island) -> Any:
        """The state, with what is an island's."""
        if self._lengths:
            if isinstance(island.counts, list):
                for name in PLAYED:
                    setattr(island, name, np.array(getattr(island, name), np.int64))
                island.counts = self._records("counts", island.counts)
            self._lengthen("left", self._lengths["messages"] + 1)
            rows = max(ROWS, len(island.used))
            self._lengthen("curves", 3 * rows + 1)
            self._lengthen("times", rows + 1)
            self.state = self.state._replace(**{name: getattr(island, name) for name in ("counts", *PLAYED)})
        else:
            for name in ("counts", *PLAYED):
                setattr(self.state, name, getattr(island, name))
        return self.state

    def rest(self, island: Island) -> None:
        """Note what has not been noted yet, as nothing is on its way any more."""
        self.core.rest(self._of(island))

    def clear(self, island: Island) -> None:
        """Nothing is left before any link."""
        flows, links = np.fromiter(island.flows, np.int64), self._channels(np.fromiter(island.links, np.int64))
        ways = self.ways_of(flows)
        cleared = [
            ("hops", ["tank"], self.hops_of(ways)),
            ("ways", ["loaded"], ways),
            ("flows", ["loaded", "waiting"], flows),
        ]
        for name, columns, numbers in [*cleared, ("queues", (*OF_QUEUES, "kind", "mean_use"), links)]:
            for column in columns:
                self.write(name, column, numbers, np.zeros(len(numbers), np.int64))

    # One for all.

    def _fold(self, island: Island, steps: float) -> None:
        """Play one of those that are alike, where that saves more than it takes."""
        numbers, ways, links, found = island.active, island.lanes, island.used, None
        entries = self.hops_of(ways)
        once = 1 if self._lengths else OF_LISTS
        if len(entries) * once >= self.least_hops and len(entries) * steps * once >= self.least_work:
            channels, wires = np.divmod(self.column("hops", "home", entries), self._links)
            crossed, of_links = np.unique(wires, return_inverse=True)
            kinds = *self._kinds(numbers, ways), self._looks(crossed)
            counts = self.column("flows", "ways", numbers), self.column("ways", "hops", ways)
            found = alike(kinds, *counts, of_links, channels)
        if found is None:
            for name, each in (("flows", numbers), ("ways", ways), ("queues", links)):
                self.write(name, "kind", each, -1 - each)
            return
        like_flows, like_ways = numbers[found.flows], ways[found.ways]
        like_links, links = crossed[found.links], crossed
        for name, each, like in (
            ("flows", numbers, like_flows),
            ("ways", ways, like_ways),
            ("queues", links, like_links),
        ):
            self.write(name, "kind", each, like + self._kind)
        self._kind += len(self.state.flows) + len(self.state.ways) + len(self.state.queues)
        self._stand(entries, like_links[of_links] + channels * self._links, found.weights)
        self.write("ways", "alike", ways, found.in_flow)
        counted = {name: self.column("queues", name, links).copy() for name in COUNTED}
        for name in COUNTED:
            self.write("queues", name, links, np.zeros(len(links), np.int64))
        island.folded = _Folded(numbers, ways, links, like_flows, like_ways, like_links, counted)
        apart = np.setdiff1d(island.used % self._links, crossed)  # whose flows are gone
        island.of_flows = _followers(like_flows, numbers)
        island.of_links = _followers(np.append(like_links, apart), np.append(links, apart))
        island.active, island.lanes = np.unique(like_flows), np.unique(like_ways)
        island.used = self._channels(np.union1d(like_links, apart))

    def _stand(self, entries: IntArray, links: IntArray, weights: IntArray) -> None:
        """Tanks are before these links, which so many of the kind share."""
        self.write("hops", "link", entries, links)
        self.write("hops", "weight", entries, weights)
        inner = entries[self.column("hops", "before", entries) >= 0]
        self.write("hops", "before", inner, self.column("hops", "link", inner - 1))
        self.write("hops", "weight_before", inner, self.column("hops", "weight", inner - 1))

    def _kinds(self, numbers: IntArray, ways: IntArray) -> tuple[IntArray, IntArray]:
        """Kinds of flows and of their ways: what they are, how they have fared so far, what they have still to send."""
        counts = self.column("flows", "ways", numbers)
        place = ways - np.repeat(self.column("flows", "at", numbers), counts)
        of_flows = _words([self.column("flows", name, numbers) for name in OF_FLOWS], len(numbers))
        of_ways = _words([self.column("ways", name, ways) for name in OF_WAYS], len(ways))
        injected, on_ways = self.column("flows", "injected", numbers), self.column("ways", "injected", ways)
        at = self.column("flows", "oldest", numbers)
        while (at >= 0).any():
            own, flows = at[at >= 0], np.flatnonzero(at >= 0)
            of_message = [self.column("messages", name, own) for name in OF_MESSAGES]
            of_message += [self.column("messages", "end", own) - injected[flows]]
            of_flows[flows] = _words([of_flows[flows], *of_message], len(flows))
            their = np.flatnonzero(np.repeat(at >= 0, counts))
            tails = np.repeat(self.column("messages", "tails", own), counts[flows]) + place[their]
            of_tail = [self.column("tails", name, tails) for name in OF_TAILS]
            of_tail += [self.column("tails", "end", tails) - on_ways[their]]
            of_ways[their] = _words([of_ways[their], *of_tail], len(their))
            at = at.copy()
            at[flows] = self.column("messages", "next", own)
        return of_flows, of_ways

    def _looks(self, links: IntArray) -> IntArray:
        """Kinds of links: what they are, and how they have fared so far."""
        names = [*columns_of(Queue)]
        names = names[names.index("line") : names.index("kind") + 1]
        rows = self._channels(links).reshape(-1, len(links))
        return _words([self.column("queues", name, each) for each in rows for name in names], len(links))

    def unfold(self, island: Island) -> None:
        """Every flow, way and link has what those have that stood for it."""
        folded = island.folded
        if folded is None:
            return
        island.folded, island.of_flows, island.of_links = None, {}, {}
        own, like, ways, links = folded.flows, folded.like_flows, folded.ways, folded.links
        entries = self.hops_of(ways)
        for name in OF_HOPS:
            self.write("hops", name, entries, self.column("hops", name, self.hops_of(folded.like_ways)))
        self._stand(entries, self.column("hops", "home", entries), np.ones(len(entries), np.int64))
        spans = np.full(len(own), SIGNALS)
        self.copy("signals", blocks(own * SIGNALS, spans), blocks(like * SIGNALS, spans))
        laws, laws_like = self.column("flows", "law", own), self.column("flows", "law", like)
        self.copy("laws", laws[laws >= 0], laws_like[laws >= 0])
        stood = dict(zip(ways.tolist(), folded.like_ways.tolist(), strict=True))
        firsts = self.column("flows", "at", like).tolist()
        self.copy("flows", own, like, "at", "law")
        self.copy("ways", ways, folded.like_ways, "at", "fork", "join", "longer", "part")
        self.write("ways", "alike", ways, np.ones(len(ways), np.int64))
        for number, first, at in zip(own.tolist(), like.tolist(), firsts, strict=True):
            self._own_messages(number, first, np.array([stood[way] for way in self._span(number)]) - at)
        self.copy("queues", self._channels(links), self._channels(folded.like_links), "wire")
        for name, before in folded.counted.items():
            together = np.maximum if name == "peak_bytes" else np.add
            self.write("queues", name, links, together(self.column("queues", name, links), before))

    def _span(self, number: int) -> range:
        """The ways of a flow."""
        flow = self.state.flows[number]
        return range(int(flow.at), int(flow.at + flow.ways))

    def _own_messages(self, number: int, first: int, places: IntArray) -> None:
        """Messages of its own for a flow, like those that the first one has; on ways like those at some `places`."""
        flow, messages = self.state.flows[number], self.state.messages
        chain, at = [], int(flow.oldest)
        while at >= 0:
            chain.append(at)
            at = int(messages[at].next)
        if number == first:
            for at in chain:
                tails = int(messages[at].tails)
                self.copy("tails", tails + np.arange(len(places)), tails + places)
            return
        if not chain:
            self._lasts[number] = NOBODY
            return
        after = self.add("messages", *(Message(0, 0, 0) for _ in chain))
        own, rows = np.arange(after, after + len(chain)), np.array(chain)
        self.copy("messages", own, rows)
        self.write("messages", "next", own[:-1], own[1:])
        tails = self.add("tails", *(Tail() for _ in range(len(chain) * len(places))))
        stood = self.column("messages", "tails", rows)
        self.copy("tails", tails + np.arange(len(chain) * len(places)), (stood[:, None] + places).ravel())
        self.write("messages", "tails", own, tails + np.arange(len(chain)) * len(places))
        if flow.current >= 0:
            flow.current = after + chain.index(int(flow.current))
        flow.oldest, self._lasts[number] = after, after + len(chain) - 1


def _words(columns: list[NDArray[Any]], count: int) -> IntArray:
    """A word for what columns say of each of so many."""
    found = np.zeros(count, np.uint64)
    for column in columns:
        found = mixed(found, column.astype(np.float64).view(np.uint64) if column.dtype.kind == "f" else column)
    return found  # type: ignore[return-value]


def _followers(firsts: IntArray, numbers: IntArray) -> Followers:
    """For whom each stands."""
    order = np.argsort(firsts, kind="stable")
    own, begins = np.unique(firsts[order], return_index=True)
    return dict(zip(own.tolist(), np.split(numbers[order], begins[1:]), strict=True))


_Arrayed = cast("Any", namedtuple("_Arrayed", State.__slots__))


@cache
def _compiled_core() -> ModuleType:
    """The functions of `flows`, with those of `laws` and of `noted`."""
    lists = {"append": compiled_heaps()["append"]}
    return with_laws(flows, ("play", "cut", "rest", "begin"), lists, noted, tanks)
