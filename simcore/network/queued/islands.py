"""The tables of flows, as lists and as arrays with compiled functions, and the islands that play in them."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field, fields
from functools import cache
from inspect import isfunction
from types import ModuleType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simcore.network.compiled import compiled, compiled_heaps, installed, kept, longer
from simcore.network.core import NEVER
from simcore.network.queued import flows, laws
from simcore.network.queued.alike import alike
from simcore.network.queued.compiled import law_type
from simcore.network.queued.flows import SIGNALS, TABLES, Queue, State
from simcore.network.queued.network import Arrival
from simcore.network.queued.tables import NOBODY
from simcore.network.topology.fabric import IntArray

TO_COMPILE, TO_LOAD = 300_000, 20_000
"""So many steps of flows take as long as to compile, and as to load what was compiled."""
STEPS_OF_A_LOOK = 256
COUNTED = ("peak_bytes", "still_ns", "stops", "marks")
NOTED = {"left": 2, "curves": 4, "times": 3}
OF_A_STEP = ("left", "chance", "use", "share", "paused", "stands", "came", "own_next", "noted", "kind")
OF_MESSAGES = ("latency_ns", "hop", "ahead", "offset_ns", "late_ns")
OF_FLOWS = ("kind", "rules", "line", "idle_ns", "period_ns", "packet_bytes", "loaded")


Followers = dict[int, IntArray]


@dataclass(eq=False)
class Island:
    """Flows that share links, with a clock of their own; `open` messages are on their way.

    `active` flows and `used` links are played. Where one stands for others, `of_flows` and `of_links` say for whom.
    """

    counts: Any
    flows: dict[int, None] = field(default_factory=dict)
    links: dict[int, None] = field(default_factory=dict)
    active: Any = ()
    used: Any = ()
    open: int = 0
    begun: list[tuple[Any, int, int, Arrival]] = field(default_factory=list)  # in this instant
    ends: list[tuple[int, int]] = field(default_factory=list)  # when messages are there, and whose, in order
    wakes_ns: int = NEVER
    folded: _Folded | None = None
    of_flows: Followers = field(default_factory=dict)
    of_links: Followers = field(default_factory=dict)

    @property
    def clock(self) -> Any:
        """Its time."""
        return self.counts[0]


@dataclass
class _Folded:
    """All flows and links, who stands for each of them, and what links had counted before."""

    flows: IntArray
    links: IntArray
    like_flows: IntArray
    like_links: IntArray
    counted: Any


class Tables:
    """The tables of flows: lists, which become arrays with compiled functions as soon as that is repaid."""

    least_hops, least_work = 256, 3_000_000  # steps of hops that are worth a look for what is alike

    def __init__(self, state: State):
        self.state: Any = state
        self._core: Any = flows
        self._lengths: dict[str, int] = {}
        self._lasts: list[int] = []
        """The last message of each flow."""
        self._played = self._kind = 0
        self._enough = TO_LOAD if installed() and kept(flows) else TO_COMPILE if installed() else NEVER

    # Rows.

    def add(self, name: str, *rows: object) -> int:
        """The number of the first of new rows."""
        if not self._lengths:
            table = getattr(self.state, name)
            table.extend(rows)
            return len(table) - len(rows)
        number = self._make_room(name, len(rows))
        table = getattr(self.state, name)
        for at, row in enumerate(rows, number):
            table[at] = _values(name, row)
        return number

    def _make_room(self, name: str, rows: int) -> int:
        number = self._lengths[name]
        self._lengths[name] = number + rows
        self._lengthen(name, number + rows)
        return number

    def _lengthen(self, name: str, rows: int) -> None:
        table = longer(getattr(self.state, name), rows)
        if table is not getattr(self.state, name):
            self.state = self.state._replace(**{name: table})

    def put(self, name: str, number: int, row: object) -> None:
        """Another row in the place of one."""
        getattr(self.state, name)[number] = _values(name, row) if self._lengths else row

    def column(self, name: str, column: str) -> NDArray[Any]:
        """Of a table."""
        rows = getattr(self.state, name)
        if self._lengths:
            return cast("NDArray[Any]", rows[column][: self._lengths[name]])
        return np.array([getattr(row, column) for row in rows])

    def take(self, name: str, followers: Followers) -> IntArray:
        """What was noted, of all for whom one stands."""
        rows = getattr(self.state, name)
        if self._lengths:
            count, rows[0, 0] = int(rows[0, 0]), 0
            found: IntArray = rows[1 : count + 1].copy()
        else:
            found = np.array(rows, np.int64).reshape(-1, NOTED[name])
            rows.clear()
        if not followers or not len(found):
            return found
        own = [followers[number] for number in found[:, 0].tolist()]
        found = np.repeat(found, [len(each) for each in own], axis=0)
        found[:, 0] = np.concatenate(own)
        return found

    def pledge(self, number: int, parts: int, latency_ns: int, now_ns: int) -> None:
        """One more message of a flow, behind all others."""
        flow = self.state.flows[number]
        if flow.injected == flow.pledged:
            flow.said_ns = now_ns - flow.period_ns  # the first packet tells
        flow.pledged += parts
        message = self.add("messages", flows.Message(int(flow.pledged), latency_ns))
        if flow.oldest < 0:
            flow.oldest = message
        else:
            self.state.messages[self._lasts[number]].next = message
        if flow.current < 0:
            flow.current = message
        self._lasts += [NOBODY] * (number + 1 - len(self._lasts))
        self._lasts[number] = message

    # Islands.

    def idle(self, island: Island) -> list[int]:
        """Flows that have nothing to send, nor anything on its way."""
        state = self.state
        if self._lengths:
            numbers = np.fromiter(island.flows, np.int64, len(island.flows))
            over = (state.flows["oldest"][numbers] < 0) & (state.flows["loaded"][numbers] == 0)
            found = numbers[over].tolist()
        else:
            rows = ((number, state.flows[number]) for number in island.flows)
            found = [number for number, flow in rows if flow.oldest < 0 and not flow.loaded]
        awaited = {number for _, number in island.ends}
        return [number for number in found if number not in awaited]

    def enter(self, island: Island) -> None:
        """It is known which flows and links play; one of many that are alike stands for all."""
        island.clock.moves = 1
        island.active, island.used = sorted(island.flows), sorted(island.links)
        if not self._lengths and self._played + self._ahead(island) >= self._enough:
            self._compile()
        if self._lengths:
            self._as_arrays(island)
            self._fold(island)

    def _ahead(self, island: Island) -> float:
        """At least so many steps of flows are to be played."""
        rows = (self.state.flows[number] for number in island.active)
        return sum((row.pledged - row.injected) / row.line for row in rows) / float(island.clock.step_ns)

    def _as_arrays(self, island: Island) -> None:
        island.active, island.used = np.array(island.active, np.int64), np.array(island.used, np.int64)
        if isinstance(island.counts, list):
            island.counts = _records("counts", island.counts)

    def play(self, island: Island, until_ns: int) -> bool:
        """Whether there is more to be played, once somebody has looked at what was noted."""
        if self._played >= self._enough and not self._lengths:
            self._compile()
        steps = int(self._core.play(self._of(island), until_ns, STEPS_OF_A_LOOK))
        self._played += steps * len(island.active)
        return steps == STEPS_OF_A_LOOK

    def cut(self, island: Island, span_ns: int) -> None:
        """A step of so long."""
        self._core.step(self._of(island), span_ns)

    def _of(self, island: Island) -> Any:
        """The state, with what is an island's."""
        if self._lengths:
            if isinstance(island.counts, list):
                self._as_arrays(island)
            self._lengthen("left", self._lengths["messages"] + 1)
            self._lengthen("curves", 3 * STEPS_OF_A_LOOK * len(island.used) + 1)
            self._lengthen("times", STEPS_OF_A_LOOK * len(island.used) + 1)
            self.state = self.state._replace(counts=island.counts, active=island.active, used=island.used)
        else:
            self.state.counts, self.state.active, self.state.used = island.counts, island.active, island.used
        return self.state

    def rest(self, island: Island) -> None:
        """Note what has not been noted yet, as nothing is on its way any more."""
        self._core.rest(self._of(island))

    def clear(self, island: Island) -> None:
        """Nothing is left before any link."""
        state = self.state
        for number in island.flows:
            flow = state.flows[number]
            for at in range(flow.at, flow.at + flow.hops):
                state.hops[at].tank = 0
            flow.loaded = 0
        for link in island.links:
            for name in OF_A_STEP:
                setattr(state.queues[link], name, 0)

    def _compile(self) -> None:
        """Go on compiled."""
        state = self.state
        self._core = _compiled_core()
        names = [*TABLES, "laws"]
        self._lengths = {name: len(getattr(state, name)) for name in names}
        tables = {name: _records(name, getattr(state, name)) for name in names}
        noted = {name: np.zeros((1, width), np.int64) for name, width in NOTED.items()}
        nobody = np.zeros(0, np.int64)
        self.state = _Arrayed(**tables, **noted, active=nobody, used=nobody)

    # One for all.

    def _fold(self, island: Island) -> None:
        """Play one of those that are alike, where that saves more than it takes."""
        state, numbers, links = self.state, island.active, island.used
        rows = state.flows[numbers]
        found = None
        steps = ((rows["pledged"] - rows["injected"]) / rows["line"]).max(initial=0) / island.clock.step_ns
        if rows["hops"].sum() >= self.least_hops and rows["hops"].sum() * steps >= self.least_work:
            entries = _blocks(rows["at"], rows["hops"])
            of_links = np.searchsorted(links, state.hops["home"][entries])
            found = alike(self._kinds(rows), _numbered(self._looks(links)), rows["hops"], of_links)
        if found is None:
            state.flows["kind"][numbers], state.queues["kind"][links] = -1 - numbers, -1 - links
            return
        like_flows, like_links = numbers[found.flows], links[found.links]
        state.flows["kind"][numbers], state.queues["kind"][links] = like_flows + self._kind, like_links + self._kind
        self._kind += len(state.flows) + len(state.queues)
        state.hops["link"][entries], state.hops["weight"][entries] = like_links[of_links], found.weights
        inner = entries[state.hops["before"][entries] >= 0]
        state.hops["before"][inner] = state.hops["link"][inner - 1]
        state.hops["weight_before"][inner] = state.hops["weight"][inner - 1]
        counted = state.queues[[*COUNTED]][links].copy()
        for name in COUNTED:
            state.queues[name][links] = 0
        island.folded = _Folded(numbers, links, like_flows, like_links, counted)
        island.of_flows, island.of_links = _followers(like_flows, numbers), _followers(like_links, links)
        island.active, island.used = np.unique(like_flows), np.unique(like_links)

    def _kinds(self, rows: Any) -> IntArray:
        """Kinds of flows: what they are, how they have fared so far, and what they have still to send."""
        messages, kinds = self.state.messages, []
        columns = (rows[name].tolist() for name in (*OF_FLOWS, "injected", "oldest"))
        for *own, injected, oldest in zip(*columns, strict=True):
            at = oldest
            while at >= 0:
                own += [messages[at].end - injected, *(messages[at][name] for name in OF_MESSAGES)]
                at = messages[at].next
            kinds.append(tuple(own))
        return _numbered(kinds)

    def _looks(self, links: IntArray) -> list[tuple[Any, ...]]:
        """What links are, and how they have fared so far."""
        names = [each.name for each in fields(Queue)]
        static = names[: names.index("kind") + 1]
        return list(zip(*(self.state.queues[name][links].tolist() for name in static), strict=True))

    def unfold(self, island: Island) -> None:
        """Every flow and every link has what those have that stood for it."""
        folded = island.folded
        if folded is None:
            return
        island.folded, island.of_flows, island.of_links = None, {}, {}
        state, own, like = self.state, folded.flows, folded.like_flows
        ats, hops = state.flows["at"], state.flows["hops"][own]
        entries, stood = _blocks(ats[own], hops), _blocks(ats[like], hops)
        state.hops["tank"][entries] = state.hops["tank"][stood]
        state.hops["link"][entries] = state.hops["home"][entries]
        inner = entries[state.hops["before"][entries] >= 0]
        state.hops["before"][inner] = state.hops["home"][inner - 1]
        state.hops["weight"][entries] = state.hops["weight_before"][entries] = 1
        spans = np.full(len(own), SIGNALS)
        state.signals[_blocks(own * SIGNALS, spans)] = state.signals[_blocks(like * SIGNALS, spans)]
        lawful = state.flows["law"][own] >= 0
        state.laws[state.flows["law"][own[lawful]]] = state.laws[state.flows["law"][like[lawful]]]
        rows = state.flows[like]
        for name in ("at", "law"):
            rows[name] = state.flows[name][own]
        state.flows[own] = rows
        for number, first in zip(own.tolist(), like.tolist(), strict=True):
            if number != first:
                self._own_messages(number)
        links = folded.links
        queues = self.state.queues
        rows = queues[folded.like_links]
        for name in ("still_ns", "stops", "marks"):
            rows[name] += folded.counted[name]
        rows["peak_bytes"] = np.maximum(rows["peak_bytes"], folded.counted["peak_bytes"])
        queues[links] = rows

    def _own_messages(self, number: int) -> None:
        """Messages of its own for a flow, like those that it has."""
        flow, messages = self.state.flows[number], self.state.messages
        chain, at = [], int(flow.oldest)
        while at >= 0:
            chain.append(at)
            at = int(messages[at].next)
        if not chain:
            self._lasts[number] = NOBODY
            return
        own = self._make_room("messages", len(chain))
        messages = self.state.messages
        messages[own : own + len(chain)] = messages[chain]
        messages["next"][own : own + len(chain) - 1] = np.arange(own + 1, own + len(chain))
        if flow.current >= 0:
            flow.current = own + chain.index(int(flow.current))
        flow.oldest, self._lasts[number] = own, own + len(chain) - 1


def _blocks(starts: IntArray, lengths: IntArray) -> IntArray:
    """Numbers from each start on, so many."""
    begins = np.cumsum(lengths) - lengths
    found: IntArray = np.arange(int(lengths.sum())) + np.repeat(starts - begins, lengths)
    return found


def _numbered(kinds: list[tuple[Any, ...]]) -> IntArray:
    """A number for each of different kinds."""
    seen: dict[tuple[Any, ...], int] = {}
    return np.array([seen.setdefault(kind, len(seen)) for kind in kinds], np.int64)


def _followers(firsts: IntArray, numbers: IntArray) -> Followers:
    """For whom each stands."""
    order = np.argsort(firsts, kind="stable")
    own, begins = np.unique(firsts[order], return_index=True)
    return dict(zip(own.tolist(), np.split(numbers[order], begins[1:]), strict=True))


_Arrayed = cast("Any", namedtuple("_Arrayed", State.__slots__))


@cache
def _compiled_core() -> ModuleType:
    """The functions of `flows`, with those of `laws`."""
    rules = compiled(laws, (), {}, inline=True)
    used = (name for name, value in vars(flows).items() if isfunction(value) and value.__module__ == laws.__name__)
    given = {name: getattr(rules, name) for name in used} | {"append": compiled_heaps()["append"]}
    return compiled(flows, ("play", "step", "rest"), given, inline=True)


@cache
def _type(name: str) -> np.dtype[Any]:
    """Of the rows of a table."""
    if name == "laws":
        return law_type()
    return np.dtype((np.record, [(each.name, "f8" if each.type == "float" else "i8") for each in fields(TABLES[name])]))


def _records(name: str, rows: list[Any]) -> Any:
    return np.array([_values(name, row) for row in rows], _type(name)).view(np.recarray)


def _values(name: str, row: Any) -> tuple[Any, ...]:
    return tuple(getattr(row, each, 0) for each in _type(name).names or ())
