"""What the ports of a dimension do with what waits: buffers, flow control, marks, the law of the senders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from simcore.documents import Node, finite
from simcore.errors import Location
from simcore.registry import Registry
from simcore.units import format_bytes, parse_bytes, parse_bytes_per_s, parse_ns

if TYPE_CHECKING:
    from simcore.network.queued.laws import Law

UNLIMITED = 1 << 60
MOST_CHANNELS = 15  # as many as InfiniBand has for data; Ethernet has eight classes
FLOW_CONTROLS = ["credits", "pfc", "drop"]
MOST_SEGMENT_BYTES, PARTS_OF_BUFFER, PARTS_OF_CURVE = 1 << 16, 16, 4
UNITS: Mapping[str, Callable[[float | str], float]] = {
    "_bytes_per_s": parse_bytes_per_s,
    "_bytes": parse_bytes,
    "_ns": parse_ns,
}


class Routing(NamedTuple):
    """How one of several ways is chosen: of the shortest ones by a hash, `hashed`, one for each two ends.

    Else each segment moves on so many `steps` among them, or takes the one where least waits, `by_queues`, which only
    links with queues do. Ways are the shortest ones, `longer` ones, too, or lead over third NPUs, `by_thirds`.
    """

    steps: int = 0
    by_queues: bool = False
    longer: bool = False
    by_thirds: bool = False
    hashed: bool = False


ROUTINGS = {
    "": Routing(),
    "ecmp": Routing(hashed=True),
    "spray": Routing(1),
    "adaptive": Routing(1, by_queues=True),
    "ugal": Routing(1, by_queues=True, longer=True),
    "valiant": Routing(1, by_thirds=True),
}
NAMED_ROUTINGS = {name or "minimal": how for name, how in ROUTINGS.items()}
"""As files say them."""


@dataclass(frozen=True, slots=True)
class Marking:
    """The chance that a packet is marked (ECN): 0 up to `kmin_bytes` in the queue, `pmax` at `kmax_bytes`, 1 beyond."""

    kmin_bytes: int
    kmax_bytes: int
    pmax: float
    packet_bytes: int


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one dimension.

    A link ends in a buffer, where what waits for the next link lies: `buffer_bytes` for each of its `channels`, the
    first for what has crossed no other link of the dimension, the next for what has crossed one, and so on. With
    `flow_control` "credits" a link sends only what has room there; with "pfc" a channel is paused when more than
    `xoff_bytes` lie there, until there are at most `xon_bytes`; with "drop" what finds no room is lost, and sent again.
    `law` and its `parameters` are the congestion control of what crosses the dimension, "" = none. `segment_bytes` are
    sent, buffered and marked as one.
    `routing` chooses among several ways, "" = the dimension's usual one; its hashes are of the ends and `seed`. With
    `flows` nobody asks for what only segments show. `place` is where a file says the size of segments, or else
    something of these ports.
    """

    buffer_bytes: int = UNLIMITED
    flow_control: str = "credits"
    xoff_bytes: int = UNLIMITED
    xon_bytes: int = UNLIMITED
    marking: Marking | None = None
    law: str = ""
    parameters: tuple[tuple[str, float], ...] = ()
    segment_bytes: int = UNLIMITED
    routing: str = ""
    seed: int = 0
    flows: bool = False
    channels: int = 1
    place: Location = field(default=Location("segment"), compare=False)

    @property
    def how(self) -> Routing:
        """What its routing is."""
        return ROUTINGS[self.routing]

    @property
    def need_queues(self) -> bool:
        """Whether links without queues would not do as these ports say."""
        least = min(self.buffer_bytes, self.segment_bytes)
        return least < UNLIMITED or bool(self.marking or self.law or self.how.steps)

    def new_law(self) -> Law:
        """The law of one sender, where there is one."""
        return _laws().get(self.law)(**dict(self.parameters))


PLAIN = Ports()


def _size(item: Node) -> int:
    return item.quantity(parse_bytes, above=True)


def _marking(item: Node) -> Marking | None:
    """`{kmin, kmax, pmax}`, and `packet` where packets are not of 4 KiB; none."""
    if item.value == "none":
        return None
    item.keys(required=("kmin", "kmax", "pmax"), optional=("packet",))
    kmin, kmax, packet = (
        item[key].quantity(parse_bytes, above=key == "packet") if key in item else 4096
        for key in ("kmin", "kmax", "packet")
    )
    pmax = item["pmax"].number() if "pmax" in item else 1.0
    if pmax > 1:
        item["pmax"].problem("a chance is at most 1", "0 to 1")
    if kmin >= kmax and "kmax" in item:
        item["kmax"].problem("kmax must be above kmin", f"more than {kmin:,} bytes")
    return Marking(kmin, max(kmax, kmin + 1), pmax, packet)


def _law(item: Node) -> tuple[str, tuple[tuple[str, float], ...]]:
    """The name of a law, or a mapping with `law` and its parameters; none."""
    if item.value == "none":
        return "", ()
    if not isinstance(item.value, dict):
        return str(item.choice(["none", *_laws().names()]) or ""), ()
    name = str(item["law"].choice(_laws().names()) or "") if "law" in item else ""
    known = _parameters(_laws().get(name)) if name else {}
    item.keys(required=("law",), optional=tuple(known) if known else tuple(key for key, _ in item.mapping()))
    given = ((known[key], value) for key, value in item.mapping() if key in known)
    return name, tuple((field, _figure(field, value, name)) for field, value in given)


def _figure(field: str, value: Node, law: str) -> float:
    """A parameter of a law; one that is below 1 by default is a share."""
    found = value.quantity(_parse(field), above=True)
    if getattr(_laws().get(law)(), field) < 1 < found:
        value.problem(f"{value.name} is a share", "above 0, at most 1")
    return found


def _laws() -> Registry[type[Law]]:
    """All of them, which few runs need."""
    from simcore.network.queued.laws import LAWS

    return LAWS


def _parameters(law: type[Law]) -> dict[str, str]:
    """Of a law: the key in a file, which has no unit, and the field."""
    own = (field.name for field in fields(law) if field.init)
    return {name.removesuffix(next((unit for unit in UNITS if name.endswith(unit)), "")): name for name in own}


def _parse(field: str) -> Callable[[float | str], float]:
    return next((parse for unit, parse in UNITS.items() if field.endswith(unit)), finite)


# Key of a file, how an entry is read, what it is without one.
PORT_KEYS: Mapping[str, tuple[Callable[[Node], object], object]] = {
    "buffer": (lambda item: UNLIMITED if item.value == "unlimited" else _size(item), UNLIMITED),
    "flow_control": (lambda item: item.choice(FLOW_CONTROLS) or "credits", "credits"),
    "xoff": (_size, 0),
    "xon": (_size, 0),
    "ecn": (_marking, None),
    "congestion_control": (_law, ("", ())),
    "segment": (_size, 0),
    "virtual_channels": (lambda item: item.integer(1, MOST_CHANNELS), 1),
}


def made_ports(given: Mapping[str, Any], flying: float, routing: tuple[str, int], places: Mapping[str, Node]) -> Ports:
    """The ports of a dimension, from its entry under each of the keys; `places` are the entries that the file has.

    So many bytes are `flying` over a link. `routing` is "" where the dimension's kind does it, with a seed.
    """
    whole, control, xoff, xon, marking, (law, parameters), segment, channels = given.values()
    channels = channels if whole < UNLIMITED else 1  # without limits more of them change nothing
    buffer = whole // channels
    sizes = [MOST_SEGMENT_BYTES, max(buffer // PARTS_OF_BUFFER, 1)]
    sizes += [max(marking.kmax_bytes // PARTS_OF_CURVE, 1)] if marking else []
    how = ROUTINGS[routing[0]]
    plain = buffer == UNLIMITED and not (marking or law or segment or how.steps)
    flows = not segment and (control != "drop" or buffer == UNLIMITED)
    flows &= not how.by_thirds  # which spreads a message over nearly as many ways as there are NPUs
    segment = UNLIMITED if plain else segment or min(sizes)
    if buffer < segment:
        least = channels * segment
        places["buffer"].problem("a buffer must hold a segment", f"at least {least:,} bytes", format_bytes(whole))
    if control != "credits" and "buffer" not in places:
        places["flow_control"].problem(f"{control} needs a buffer that ends", "buffer: a size for each dimension")
    if control == "pfc" and buffer < UNLIMITED:
        xoff, xon = _thresholds(buffer, channels, xoff, xon, segment, flying, places)
    elif xoff or xon:
        place = places["xoff" if xoff else "xon"]
        place.problem("xoff and xon are PFC's", "flow_control: pfc and a buffer, or no xoff and xon", str(control))
    if law and _laws().get(law).needs_marks and not marking:
        place = places["congestion_control"]
        place.problem(f"{law} slows down on marks", "ecn: {kmin: .., kmax: .., pmax: ..}", "no ecn")
    own = places.get("segment", next(iter(places.values()))).location
    return Ports(
        buffer, control, xoff or UNLIMITED, xon, marking, law, parameters, segment, *routing, flows, channels, own
    )


def _thresholds(
    buffer: int, channels: int, xoff: int, xon: int, segment: int, flying: float, places: Mapping[str, Node]
) -> tuple[int, int]:
    """Where a pause of a channel begins and ends: what still comes once it is sent must have room."""
    room = ceil(2 * flying) + 2 * segment
    found = xoff or buffer - room
    if not 0 < found <= buffer - room:
        least, each = ((xoff or segment) + room) * channels, " in each channel" * (channels > 1)
        needed = f"a buffer of at least {least:,} bytes: {room:,} come{each} once a pause is sent"
        places["buffer"].problem("PFC would lose bytes", needed, format_bytes(buffer * channels))
    low = xon or max(found - 2 * segment, 0)
    if low >= max(found, 1):
        places["xon"].problem("a pause must end below where it begins", f"xon below {found:,} bytes", f"{low:,} bytes")
    return found, low
