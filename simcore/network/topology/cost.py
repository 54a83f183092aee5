"""What a network costs: its cables, switches and NICs by a table of prices, and the power they draw.

A cable is a link and the one that comes back. A switch of more ports than there are in one box is a folded Clos of
boxes, without oversubscription, whose inner cables count; small switches share a box. Prices are by level (inside a
server, between servers, ...), which a dimension names; a graph whose file tells servers and switches has both levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import ceil, fsum, inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simcore.documents import Node, read
from simcore.errors import InputError, Problems, closest
from simcore.network.topology.fabric import FloatArray, IntArray
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import GIGABYTE
from simcore.network.topology.model import Dimension, Graph
from simcore.units import parse_bytes_per_s

COMPONENTS = ("link", "switch", "nic")
MODEL_KEYS = ("ports", "usd", "watts", "usd_per_m", "up_to_m")
RATE_KEYS = ("usd_per_gbyte_per_s", "watts_per_gbyte_per_s", "models")
HOURS_PER_YEAR = 8760
USUAL_PRICES = "400g-2024"
SHIPPED = Path(__file__).parent / "prices"


@dataclass(frozen=True, slots=True)
class Model:
    """A part as it is sold: `ports` of a rate; a cable up to a length, with a price for every metre."""

    rate_bytes_per_s: float
    ports: int = 1
    usd: float = 0.0
    watts: float = 0.0
    usd_per_m: float = 0.0
    up_to_m: float = inf


@dataclass(frozen=True, slots=True)
class Component:
    """The price of a kind of part: by its rate, or as one of several models."""

    usd_per_gbyte_per_s: float = 0.0
    watts_per_gbyte_per_s: float = 0.0
    models: tuple[Model, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """Prices of one level; what has none costs nothing."""

    name: str
    length_m: float = 0.0
    components: dict[str, Component] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prices:
    """A price file: its levels, and which ones dimensions take that name none, innermost first; the last repeats."""

    name: str
    source: str
    levels: dict[str, Level]
    default: tuple[str, ...]
    gigabyte: float = 1e9
    usd_per_kwh: float = 0.0

    @property
    def inside(self) -> Level:
        """Of what is inside the servers and switches of a graph."""
        return self.levels[self.default[-2:][0]]


@dataclass(frozen=True, slots=True)
class Item:
    """So many parts of a kind in a dimension: boxes, cards or cables, each of `ports`, at this bandwidth or less."""

    dimension: int
    level: str
    part: str
    count: int
    ports: int
    bandwidth_bytes_per_s: float
    usd: float
    watts: float


Buy = Callable[[str, int, dict[float, int]], Iterator[Item]]
"""A kind of part, how many, and the ports of each by their rate -> what is bought."""


class Clos(NamedTuple):
    """Boxes and inner cables that make one switch."""

    boxes: int
    cables: int


def clos(ports: int, radix: int) -> Clos:
    """The least folded Clos, without oversubscription, of boxes with `radix` ports that offers so many.

    Half of a leaf's ports go up, one to each of radix / 2 planes; planes that are small share boxes. k^3 / 4 ports of
    radix k take 5 k^2 / 4 boxes (Al-Fares et al., SIGCOMM 2008).

    >>> clos(64, 64), clos(2048, 64), clos(65536, 64).boxes
    (Clos(boxes=1, cables=0), Clos(boxes=96, cables=2048), 5120)
    """
    if ports <= radix:
        return Clos(1, 0)
    half = radix // 2
    leaves = ceil(ports / half)
    if leaves <= radix:
        return Clos(leaves + ceil(half / (radix // leaves)), leaves * half)
    plane = clos(leaves, radix)
    return Clos(leaves + half * plane.boxes, half * (leaves + plane.cables))


def cost_of(links: LinkGraph, prices: Prices, lengths_m: Sequence[float] = ()) -> list[Item]:
    """The parts of a network, dimension by dimension; `lengths_m` outdo the lengths of the price file.
    InputError where a dimension names a level that has no prices, or no model serves it; where nothing has a price.
    """
    if links.topology.wafer:
        raise InputError.at(links.topology.name, "a wafer is made with its links: no table of prices has them")
    dims = links.topology.dims if len(links.topology.dims) == len(links.axes) else (links.topology.dims[0],)
    if lengths_m and len(lengths_m) != len(dims):
        expected = f"{len(dims)}, one for each dimension"
        message = "not a length for every dimension"
        raise InputError.at("--length", message, expected=expected, found=str(len(lengths_m)))
    place, graph = links.topology.path or links.topology.name or "levels", links.topology.graph
    names = _levels(dims, prices, place)
    found: list[Item] = []
    for index, (axis, dim) in enumerate(zip(links.axes, dims, strict=True)):
        level = prices.levels[names[index]]
        level = replace(level, length_m=lengths_m[index]) if lengths_m else level
        item = partial(_items, index, level, prices)
        if graph and graph.boxes:
            found += _boxed(graph, partial(_items, index, prices.inside, prices), item)
        else:
            src, dst = axis.ends
            single = axis.fabric.bandwidths() / dim.parallel_links
            found += _parts(item, src, dst, single, axis.fabric.npus, dim.parallel_links, axis.groups)
    if not found and links.topology.npus > 1:
        levels = f"links of level {', '.join(dict.fromkeys([prices.inside.name] if graph and graph.boxes else names))}"
        priced = ", ".join(level.name for level in prices.levels.values() if level.components)
        message, hint = f"no part of it has a price in {prices.name}", "--prices FILE names prices of your own"
        raise InputError.at(place, message, expected=f"links of level {priced}", found=levels, hint=hint)
    return found


def _boxed(graph: Graph, inside: Buy, outside: Buy) -> Iterator[Item]:
    """Of a graph of servers and switches: what is inside them, what joins them, cards whose cables lead elsewhere."""
    ends, rates = np.array([graph.src, graph.dst], np.int64), np.array(graph.bandwidth_bytes_per_s)
    servers = [*dict.fromkeys(graph.boxes[: graph.npus])]
    number = {box: place for place, box in enumerate(dict.fromkeys([*servers, *graph.boxes]))}
    boxes = np.array([number[box] for box in graph.boxes], np.int64)[ends]
    within = boxes[0] == boxes[1]
    inner, outer = ends[:, within], boxes[:, ~within]
    yield from _parts(inside, inner[0], inner[1], rates[within], graph.npus, least_ports=2)  # a card is none
    yield from _parts(outside, outer[0], outer[1], rates[~within], len(servers))
    for rate, count in sorted(Counter(graph.card_bytes_per_s).items()):
        yield from outside("nic", count, {rate: 1})


def _levels(dims: Sequence[Dimension], prices: Prices, place: str) -> list[str]:
    """The level of every dimension: its own, that of a next one which is alike, or by its place, the last for more."""
    more = len(dims) - len(prices.default)
    usual = [*prices.default, *prices.default[-1:] * more] if more > 0 else prices.default[-len(dims) :]
    names = [dim.level or name for dim, name in zip(dims, usual, strict=True)]
    for index, (dim, outer) in reversed([*enumerate(pairwise(dims))]):
        if not dim.level and replace(dim, npus=outer.npus, level=outer.level) == outer:
            names[index] = names[index + 1]
    for name in names:
        if name not in prices.levels:
            hint = closest(name, prices.levels)
            raise InputError.at(place, f"{prices.name} has no prices of this level", expected=hint, found=repr(name))
    return names


def _parts(
    item: Buy,
    src: IntArray,
    dst: IntArray,
    rates: FloatArray,
    npus: int,
    parallel: int = 1,
    groups: int = 1,
    least_ports: int = 1,
) -> Iterator[Item]:
    """Cables, NICs and switches of links by their ends, so many NPUs first; each link stands for several, and for those
    of all groups. What has fewer than `least_ports` is no switch.
    """
    for rate in np.unique(rates).tolist():
        count = int((rates == rate).sum()) * parallel * groups
        yield from item("link", -(-count // 2), {rate: 1})
        cards = int(((src < npus) & (dst >= npus) & (rates == rate)).sum()) * parallel * groups
        yield from item("nic", cards, {rate: 1})
    ports: dict[int, dict[float, int]] = {}
    for device, rate in sorted(zip(src[src >= npus].tolist(), rates[src >= npus].tolist(), strict=True)):
        own = ports.setdefault(device, {})
        own[rate] = own.get(rate, 0) + parallel
    for alike, count in Counter(
        frozenset(of.items()) for of in ports.values() if sum(of.values()) >= least_ports
    ).items():
        yield from item("switch", count * groups, dict(sorted(alike)))


def _items(index: int, level: Level, prices: Prices, part: str, count: int, ports: dict[float, int]) -> Iterator[Item]:
    """So many parts with ports by their rate at a level, none if they have no price."""
    price = level.components.get(part)
    if price is None or not count or not ports:
        return
    if not price.models:
        gigabytes = fsum(rate * number for rate, number in ports.items()) / prices.gigabyte * count
        usd, watts = price.usd_per_gbyte_per_s * gigabytes, price.watts_per_gbyte_per_s * gigabytes
        yield Item(index, level.name, part, count, sum(ports.values()), max(ports), usd, watts)
        return
    fitting = [model for model in price.models if model.up_to_m >= level.length_m]
    if not fitting:
        message = f"no {part} of {prices.name} is {level.length_m:g} m long"
        raise InputError.at("--length", message, expected=f"up to {max(model.up_to_m for model in price.models):g} m")
    yield from min(([*_sold(index, level, prices, part, count, ports, model)] for model in fitting), key=total_usd)


def _sold(
    index: int, level: Level, prices: Prices, part: str, count: int, ports: dict[float, int], model: Model
) -> Iterator[Item]:
    """So many parts made of one model, and the cables inside them."""
    made = _bought(part, model, count, ports)
    usd, watts = made.boxes * (model.usd + model.usd_per_m * level.length_m), made.boxes * model.watts
    yield Item(index, level.name, part, made.boxes, model.ports, model.rate_bytes_per_s, usd, watts)
    if made.cables:
        yield from _items(index, level, prices, "link", made.cables, {model.rate_bytes_per_s: 1})


def _bought(part: str, model: Model, count: int, ports: dict[float, int]) -> Clos:
    """Boxes and cables inside for so many parts; a faster link takes several ports, small parts share a box, and only
    the boxes of a switch are joined by cables.
    """
    needed = sum(number * ceil(rate / model.rate_bytes_per_s) for rate, number in ports.items())
    if needed <= model.ports:
        return Clos(ceil(count / (model.ports // needed)), 0)
    if model.ports == 1 or part != "switch":
        return Clos(count * ceil(needed / model.ports), 0)
    one = clos(needed, model.ports)
    return Clos(one.boxes * count, one.cables * count)


def total_usd(items: Sequence[Item]) -> float:
    """What all of it costs to buy."""
    return fsum(item.usd for item in items)


def shipped_prices() -> list[str]:
    """Names of the price files that come along."""
    return sorted(file.stem for file in SHIPPED.iterdir())


def read_prices(name: str) -> Prices:
    """A price file, or one that comes along by name; InputError with every fault and its place."""
    path = SHIPPED / f"{name}.yaml" if name in shipped_prices() else Path(name)
    if not path.exists():
        expected = closest(name, shipped_prices())
        raise InputError.at(name, "there is no such price file", expected=expected, found=repr(name))
    with Problems() as problems:
        root = read(path, problems)
        root.keys(required=("levels", "default"), optional=("name", "source", "gigabyte", "usd_per_kwh"))
        gigabyte = GIGABYTE[str(root["gigabyte"].choice(list(GIGABYTE)) or "decimal")] if "gigabyte" in root else 1e9
        entries = root["levels"].mapping() if "levels" in root else ()
        levels: dict[str, Level] = {}
        for key, node in sorted(entries, key=lambda entry: isinstance(entry[1].value, str)):
            if isinstance(node.value, str):  # another name of a level
                levels[key] = levels.get(str(node.choice(list(levels))), Level(key))
                continue
            node.keys(optional=(*COMPONENTS, "length_m"))
            parts = {part: _component(part, node[part], gigabyte) for part in COMPONENTS if part in node}
            levels[key] = Level(key, node["length_m"].number() if "length_m" in node else 0.0, parts)
        usual = root["default"].sequence() if levels and "default" in root else []
        default = [str(item.choice(list(levels)) or "") for item in usual]
        if not problems.found and not default:
            root["default"].problem("no level for a dimension that names none", "a list of levels, innermost first")
        texts = [root[key].text() if key in root else "" for key in ("name", "source")]
        hourly = root["usd_per_kwh"].number() if "usd_per_kwh" in root else 0.0
    return Prices(texts[0] or path.stem, texts[1], levels, tuple(default), gigabyte, hourly)


def _component(part: str, node: Node, gigabyte: float) -> Component:
    needed = 0 if "models" in node else 1
    node.keys(required=RATE_KEYS[:needed], optional=RATE_KEYS[needed:])
    models = tuple(_model(part, item, gigabyte) for item in node.listed("models"))
    if "models" in node and not models:
        node["models"].problem("nothing is sold", "one model or more", "none")
    usd, watts = (node[key].number() if key in node else 0.0 for key in RATE_KEYS[:2])
    for key in RATE_KEYS[:2]:
        if models and key in node:
            node[key].problem(f"{key} has no effect beside models", "one of the two", f"{key} and models")
    return Component(usd, watts, models)


def _model(part: str, node: Node, gigabyte: float) -> Model:
    needed = ["rate", "usd_per_m" if "usd_per_m" in node else "usd", *(["ports"] if part == "switch" else [])]
    node.keys(required=tuple(needed), optional=tuple(key for key in MODEL_KEYS if key not in needed))
    parse = partial(parse_bytes_per_s, gigabyte=gigabyte)
    rate = node["rate"].quantity(parse, above=True) if "rate" in node else 1.0
    ports = node["ports"].integer(1) if "ports" in node else 1
    given = {key: node[key].number() for key in MODEL_KEYS if key in node and key != "ports"}
    if part == "switch" and ports != 1 and (ports < 4 or ports % 2):
        node["ports"].problem("boxes of this many ports make no network", "1, or an even number from 4")
    return Model(rate, ports, **given)
