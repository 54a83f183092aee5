"""What is on its way over a part of the network: messages, phases of groups that share links, whole collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from simcore.network.congested import LinkNetwork
from simcore.network.core import NEVER
from simcore.network.parts import FoldedLinks, Part
from simcore.network.topology.fabric import IntArray
from simcore.network.topology.moves import EVERYBODY, Fold
from simcore.system.groups import GroupDim
from simcore.system.messages.layouts import Shape
from simcore.system.streams import Stream, StreamPhase
from simcore.system.transport import Done

if TYPE_CHECKING:
    from simcore.system.alone.solver import PhaseTimes
    from simcore.system.meeting.live import Live

Seat = tuple[int, int]
"""Which of some groups, and the position there."""
LAST = NEVER
"""Orders messages of no phase behind all phases."""
Taken = Sequence[tuple[tuple[int, int], int, Mapping[tuple[StreamPhase, tuple[int, ...]], Sequence[int]]]]
"""Some places, with their links that are used, a bit for each, and when which groups began which phase there."""


class Site(Struct, frozen=True):
    """A part of the network and how it is played.

    `alike`: all NPUs of a place that one stage has may change places, after moves that the fabric has. `fold`: who
    plays for others. `meets`: phases may want one link at once.
    `placeless`: a place is one group, and it makes no difference who is where in it, nor do phases ever want one link.
    """

    part: Part
    alike: bool
    fold: Fold
    meets: bool
    placeless: bool = False

    def where(self, classes: IntArray) -> Site:
        """In a place of NPUs of these classes: all of them play if some do not do what those do who play for them."""
        return self if self.placeless or self.fold.fits(classes) else replace(self, fold=EVERYBODY)


class Flight(Struct, eq=False):
    """What is on its way, a message or a phase; `bits` are its links. It is over at `end_ns`, where that is known.

    `alone`, nobody else uses its links, and its times were told; `begun` lists when that was so of such ones.

    Of what is played, `open` counts the positions of instances that are still in it, and `parts` those of each position
    of a group that is in several; `leave` tells those who wait for one.
    """

    bits: int
    begin_ns: int
    order: int
    leave: Callable[[Seat], None]
    begun: list[int]
    end_ns: int = NEVER
    alone: bool = False
    parts: dict[Seat, int] = field(default_factory=dict)
    open: int = 0
    instances: list[int] = field(default_factory=list)

    def fly(self, lasts_ns: int) -> None:
        """Be alone, for so long."""
        self.alone, self.end_ns = True, self.begin_ns + lasts_ns
        self.begun.append(self.begin_ns)

    def land(self) -> None:
        """Be no longer alone: it is played, from its beginning on."""
        self.alone, self.end_ns = False, NEVER
        self.begun.remove(self.begin_ns)


class Together(Struct, eq=False):
    """Groups of a place that begin a phase together and share links, which are `bits`.

    `seats` are the classes by group and position. Nobody else there, some are through after each of the times `exits`.
    `begun` lists when that was so.
    """

    phase: StreamPhase
    groups: tuple[int, ...]
    bits: int
    seats: dict[Seat, list[int]]
    begun: list[int]
    exits: list[tuple[int, list[int]]] = field(default_factory=list)
    end_ns: int = 0

    def learn(self, times: PhaseTimes) -> None:
        """It is known how long it takes."""
        exits: dict[int, list[int]] = {}
        for (group, position), classes in self.seats.items():
            exits.setdefault(times.exits_ns[group][position], []).extend(classes)
        self.exits, self.end_ns = sorted(exits.items()), times.end_ns


class PhaseFlight(Flight, kw_only=True):
    """A phase of groups of a place; `told` says how many exits there were."""

    together: Together
    there: Mapping[int, Stream]
    done: Done
    told: int = 0

    @property
    def name(self) -> tuple[Any, ...]:
        """What it is, equal for equal ones in equal places."""
        return self.order, self.together.phase, self.together.groups

    @staticmethod
    def of(together: Together, begin_ns: int, order: int, there: Mapping[int, Stream], done: Done) -> PhaseFlight:
        """One that begins."""
        leave = partial(tell, together, there, done)
        flight = together.bits, begin_ns, order, leave, together.begun
        return PhaseFlight(*flight, together=together, there=there, done=done)


class MessageFlight(Flight, kw_only=True):
    """A message of no phase; `kind`: two NPUs of a place, and bytes."""

    kind: tuple[int, int, int]
    tag: int

    @property
    def name(self) -> tuple[Any, ...]:
        """As of phases."""
        return *self.kind, self.tag


class Way(NamedTuple):
    """Where a message goes: the place, its links there, its first hop, the sender's number; the message's `kind`."""

    place: Place
    bits: int
    hop: int
    sender: int
    kind: tuple[int, int, int]


class WholeFlight(Flight, kw_only=True):
    """A collective that is told as a whole, in one place."""

    disturbed: Callable[[], None]


class Place:
    """One copy of a part of the network: who is there, in which groups, and what is on its way.

    `begun` lists when each kind of phase (of groups) or message (of ends and bytes) began alone. `lives` have played
    what cannot be alone, where columns do not, the last one as long as `live` gives it. `starting` are the chunks of
    the classes that begin a phase in this instant, and who is told of their ends, by chunk, number of phase and phase.
    """

    def __init__(self, site: Site, base: int, shape: Shape, shift: int, class_of: IntArray):
        self.site, self.base, self.shape, self.shift = site, base, shape, shift
        self._class_of = class_of
        self.flights: list[Flight] = []
        self._live: Live | None = None
        self.lives: list[Live] = []
        self.starting: dict[tuple[tuple[int, int], int, StreamPhase], tuple[dict[int, Stream], Done]] = {}
        self.begun: dict[tuple[Any, ...], list[int]] = {}
        self._table = cache(self._find)

    def meeting(self, flight: Flight) -> list[Flight]:
        """What is on its way on links of a flight that begins."""
        now_ns, bits = flight.begin_ns, flight.bits
        self.flights = [other for other in self.flights if other.end_ns > now_ns]
        return [other for other in self.flights if other.bits & bits]

    def live(self, now_ns: int) -> Live | None:
        """Who plays the messages here, as long as some are on their way, or matter to others."""
        if self._live and all(each.alone or each.end_ns <= now_ns for each in self.flights) and not self._live.matters:
            self._live.end(self)
            self._live = None
        return self._live

    def play_from_now(self, live: Live) -> None:
        """Somebody plays the messages here; in the place of who has done so up to now, where somebody has."""
        if self._live:
            self.lives.pop()
        self._live = live
        self.lives.append(live)

    def put(self, bases: IntArray, column: IntArray, own: IntArray) -> None:
        """Write what the links here did for all places that did the same."""
        part, graph = self.site.part, self.shape.graph
        values = own[graph.stands_for] if isinstance(graph, FoldedLinks) else own
        if part.whole:
            column[:] = values
            return
        outside, inside = part.coordinates(bases)
        at = 0
        for view in part.views(column):
            count = view.shape[1] * view.shape[3]
            view[outside, :, inside] = values[at : at + count].reshape(view.shape[1], view.shape[3])
            at += count

    def groups(self, dim: GroupDim) -> list[IntArray]:
        """The groups of a dimension, as NPUs of the place."""
        return self._table(dim)[0]

    def seats(self, dim: GroupDim, npu_class: int) -> list[tuple[int, int]]:
        """Group and position of every NPU of a class."""
        return self._table(dim)[1][npu_class]

    def _find(self, dim: GroupDim) -> tuple[list[IntArray], dict[int, list[tuple[int, int]]]]:
        part = self.site.part
        firsts: dict[int, IntArray] = {}
        found: set[int] = set()
        own = part.members(self.base)
        for npu in own[np.unique(self.site.fold.of(np.arange(part.npus)))].tolist():
            if npu not in found:  # one outside of a communicator has the same members as those inside
                members = dim.members(npu)
                firsts.setdefault(int(members[0]), members)
                found.update(members.tolist())
        groups: list[IntArray] = []
        seats: dict[int, list[tuple[int, int]]] = {}
        for index, members in enumerate(firsts.values()):
            groups.append(members // part.stride % part.npus)
            players = self.site.fold.players(groups[-1])
            for position, npu_class in enumerate(self._class_of[members].tolist()):
                seat = (index, position % players)
                taken = seats.setdefault(npu_class, [])
                if seat not in taken[-1:]:
                    taken.append(seat)
        return groups, seats


def tell(together: Together, there: Mapping[int, Stream], done: Done, seat: Seat) -> None:
    """A position of a group is through."""
    for npu_class in together.seats.get(seat, ()):
        if npu_class in there:
            done(there[npu_class])


def link_bits(shape: Shape, network: type[LinkNetwork], src: IntArray, dst: IntArray) -> int:
    """A number with a bit for each link that some messages may take."""
    used = np.zeros(len(shape.graph), bool)
    used[network.among(shape.graph, src, dst)] = True
    return int.from_bytes(np.packbits(used, bitorder="little").tobytes(), "little")


def components(groups: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Groups with their links, put together where they share some, directly or through others."""
    found: list[tuple[list[int], int]] = []
    for group, bits in groups:
        met = [each for each in found if each[1] & bits]
        found = [each for each in found if not each[1] & bits]
        everything = reduce(or_, (each[1] for each in met), bits)
        found.append((sorted([group, *(one for each in met for one in each[0])]), everything))
    return sorted(tuple(each) for each, _ in found)
