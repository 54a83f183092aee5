"""Islands: flows that share links, and how they are played."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field, fields
from functools import cache
from types import ModuleType
from typing import Any, cast

import numpy as np

from simcore.network.compiled import compiled_heaps, installed, kept
from simcore.network.core import NEVER
from simcore.network.queued import flows, laws
from simcore.network.queued.alike import alike
from simcore.network.queued.compiled import NOTED, Tables, columns_of, with_laws
from simcore.network.queued.flows import SIGNALS, TABLES, Queue, State
from simcore.network.queued.network import Arrival
from simcore.network.queued.repeats import Look, blocks
from simcore.network.queued.steady import HINT
from simcore.network.queued.tables import NOBODY
from simcore.network.topology.fabric import IntArray
from simcore.progress import meter

TO_COMPILE, TO_LOAD = 300_000, 20_000
"""So many steps of flows take as long as to compile, and as to load what was compiled."""
STEPS_OF_A_LOOK = 256
OF_LISTS = 100
"""Steps in lists take so many times as long."""
COUNTED = ("peak_bytes", "still_ns", "stops", "marks")
OF_A_STEP = (
    "left",
    "chance",
    "use",
    "share",
    "paused",
    "stands",
    "came",
    "own_next",
    "noted",
    "kind",
    "mean_use",
    "highest",
)
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
    look: Any = None
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
    counted: dict[str, IntArray]


class Islands(Tables):
    """The tables of flows: lists, which become arrays with compiled functions as soon as that is repaid."""

    core = flows
    kinds = TABLES | {"laws": laws.Law}
    noted = NOTED | {"left": 2}
    least_hops, least_work = 256, 3_000_000  # steps of hops that are worth a look for what is alike

    def __init__(self, state: State):
        super().__init__(state)
        self._lasts: list[int] = []
        """The last message of each flow."""
        self._played = self._kind = 0
        self._enough = TO_LOAD if installed() and kept(flows) else TO_COMPILE if installed() else NEVER

    @property
    def names_of_laws(self) -> list[str]:
        """Of columns, beside that of the last reaction."""
        return [name for name in columns_of(laws.Law) if name != "reacted_ns"]

    def take(self, name: str, followers: Followers | None = None) -> IntArray:
        """What was noted, of all for whom one stands."""
        found = super().take(name)
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
            if not flow.signals:  # what has not been told of has come back since
                flow.acked, flow.unsaid = flow.injected, 0
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
        numbers = np.fromiter(island.flows, np.int64, len(island.flows))
        over = (self.column("flows", "oldest", numbers) < 0) & (self.column("flows", "loaded", numbers) == 0)
        awaited = {number for _, number in island.ends}
        return [number for number in numbers[over].tolist() if number not in awaited]

    def enter(self, island: Island) -> None:
        """It is known which flows and links play; one of many that are alike stands for all."""
        island.clock.moves = 1
        flows, links = np.array(sorted(island.flows), np.int64), np.array(sorted(island.links), np.int64)
        ahead = self.column("flows", "pledged", flows) - self.column("flows", "injected", flows)
        steps = ahead / (self.column("flows", "line", flows) * int(island.clock.step_ns))
        island.active, island.used = flows, links
        self._fold(island, float(steps.max(initial=0)))
        if not self._lengths:
            island.active, island.used = island.active.tolist(), island.used.tolist()
        island.look = Look(self, island)

    def play(self, island: Island, until_ns: int) -> bool:
        """Whether there is more to be played, once somebody has looked at what was noted."""
        if self._played >= self._enough and not self._lengths:
            nobody = np.zeros(0, np.int64)
            self._become(_compiled_core(), _Arrayed, active=nobody, used=nobody)
        elif self._played >= TO_COMPILE and not installed():
            meter().hint = HINT
        most = min(STEPS_OF_A_LOOK, island.look.due)
        steps = int(self.core.play(self._of(island), until_ns, most))
        self._played += steps * len(island.active)
        if island.look.after(steps, until_ns):
            self.core.play(self._of(island), until_ns, 0)
        return bool(steps == most)

    def cut(self, island: Island, span_ns: int) -> None:
        """A step of so long."""
        self.core.step(self._of(island), span_ns)
        island.look = Look(self, island)

    def _of(self, island: Island) -> Any:
        """The state, with what is an island's."""
        if self._lengths:
            if isinstance(island.counts, list):
                island.active, island.used = np.array(island.active, np.int64), np.array(island.used, np.int64)
                island.counts = self._records("counts", island.counts)
            self._lengthen("left", self._lengths["messages"] + 1)
            self._lengthen("curves", 3 * STEPS_OF_A_LOOK * len(island.used) + 1)
            self._lengthen("times", STEPS_OF_A_LOOK * len(island.used) + 1)
            self.state = self.state._replace(counts=island.counts, active=island.active, used=island.used)
        else:
            self.state.counts, self.state.active, self.state.used = island.counts, island.active, island.used
        return self.state

    def rest(self, island: Island) -> None:
        """Note what has not been noted yet, as nothing is on its way any more."""
        self.core.rest(self._of(island))

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

    # One for all.

    def _fold(self, island: Island, steps: float) -> None:
        """Play one of those that are alike, where that saves more than it takes."""
        numbers, links, found = island.active, island.used, None
        ats, hops = self.column("flows", "at", numbers), self.column("flows", "hops", numbers)
        entries = blocks(ats, hops)
        once = 1 if self._lengths else OF_LISTS
        if len(entries) * once >= self.least_hops and len(entries) * steps * once >= self.least_work:
            crossed, of_links = np.unique(self.column("hops", "home", entries), return_inverse=True)
            found = alike(self._kinds(numbers), self._looks(crossed), hops, of_links)
        if found is None:
            self.write("flows", "kind", numbers, -1 - numbers)
            self.write("queues", "kind", links, -1 - links)
            return
        like_flows, like_links, links = numbers[found.flows], crossed[found.links], crossed
        self.write("flows", "kind", numbers, like_flows + self._kind)
        self.write("queues", "kind", links, like_links + self._kind)
        self._kind += len(self.state.flows) + len(self.state.queues)
        self._stand(entries, like_links[of_links], found.weights)
        counted = {name: self.column("queues", name, links).copy() for name in COUNTED}
        for name in COUNTED:
            self.write("queues", name, links, np.zeros(len(links), np.int64))
        island.folded = _Folded(numbers, links, like_flows, like_links, counted)
        apart = np.setdiff1d(island.used, crossed)  # whose flows are gone
        island.of_flows = _followers(like_flows, numbers)
        island.of_links = _followers(np.append(like_links, apart), np.append(links, apart))
        island.active, island.used = np.unique(like_flows), np.union1d(like_links, apart)

    def _stand(self, entries: IntArray, links: IntArray, weights: IntArray) -> None:
        """Tanks are before these links, which so many of the kind share."""
        self.write("hops", "link", entries, links)
        self.write("hops", "weight", entries, weights)
        inner = entries[self.column("hops", "before", entries) >= 0]
        self.write("hops", "before", inner, self.column("hops", "link", inner - 1))
        self.write("hops", "weight_before", inner, self.column("hops", "weight", inner - 1))

    def _kinds(self, numbers: IntArray) -> IntArray:
        """Kinds of flows: what they are, how they have fared so far, and what they have still to send."""
        messages, kinds = self.state.messages, []
        columns = (self.column("flows", name, numbers).tolist() for name in (*OF_FLOWS, "injected", "oldest"))
        for *own, injected, oldest in zip(*columns, strict=True):
            at = oldest
            while at >= 0:
                message = messages[at]
                own += [message.end - injected, *(getattr(message, name) for name in OF_MESSAGES)]
                at = message.next
            kinds.append(tuple(own))
        return _numbered(kinds)

    def _looks(self, links: IntArray) -> IntArray:
        """Kinds of links: what they are, and how they have fared so far."""
        names = [each.name for each in fields(Queue)]
        columns = (self.column("queues", name, links).tolist() for name in names[: names.index("kind") + 1])
        return _numbered(list(zip(*columns, strict=True)))

    def unfold(self, island: Island) -> None:
        """Every flow and every link has what those have that stood for it."""
        folded = island.folded
        if folded is None:
            return
        island.folded, island.of_flows, island.of_links = None, {}, {}
        own, like, links = folded.flows, folded.like_flows, folded.links
        ats, hops = self.column("flows", "at"), self.column("flows", "hops", own)
        entries, stood = blocks(ats[own], hops), blocks(ats[like], hops)
        self.write("hops", "tank", entries, self.column("hops", "tank", stood))
        self._stand(entries, self.column("hops", "home", entries), np.ones(len(entries), np.int64))
        spans = np.full(len(own), SIGNALS)
        self.copy("signals", blocks(own * SIGNALS, spans), blocks(like * SIGNALS, spans))
        laws, laws_like = self.column("flows", "law", own), self.column("flows", "law", like)
        self.copy("laws", laws[laws >= 0], laws_like[laws >= 0])
        self.copy("flows", own, like, "at", "law")
        for number, first in zip(own.tolist(), like.tolist(), strict=True):
            if number != first:
                self._own_messages(number)
        self.copy("queues", links, folded.like_links)
        for name, before in folded.counted.items():
            together = np.maximum if name == "peak_bytes" else np.add
            self.write("queues", name, links, together(self.column("queues", name, links), before))

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
        first = self.add("messages", *(messages[at] for at in chain))
        own = np.arange(first, first + len(chain))
        self.copy("messages", own, np.array(chain))
        self.write("messages", "next", own[:-1], own[1:])
        if flow.current >= 0:
            flow.current = first + chain.index(int(flow.current))
        flow.oldest, self._lasts[number] = first, first + len(chain) - 1


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
    return with_laws(flows, ("play", "step", "rest"), {"append": compiled_heaps()["append"]})
