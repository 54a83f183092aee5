"""Traces that resemble given ones without their names, sizes and order: learn, sample, project to ranks.

After the generative part of the Chakra paper (arXiv 2305.14516, section on trace synthesis): all ranks' communication
is merged into one master trace, in which every collective stands once; what follows what is a Markov chain over
(group, collective), sizes are a Gaussian mixture of log2(bytes) per collective, computation between collectives one of
log2(ns). A sampled master trace gives every rank the same order, so that no sample can deadlock.

How like its sources a trace is: Kolmogorov-Smirnov on sizes and gaps, chi-square on what follows what. Levels are those
of independent draws, which those of a chain are not: they tell sets apart, they prove nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import erfc, exp, fsum, log, sqrt
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError
from simcore.progress import meter
from simcore.workload.chakra import writer
from simcore.workload.chakra.schema import CommType
from simcore.workload.model import CollectiveKind, Graph, GraphSet, NodeKind
from simcore.workload.order import waiting_order

Floats = NDArray[np.float64]
MAX_COMPONENTS = 6
STEPS = 200
SMALLEST_DEVIATION = 0.02  # keeps a component on a repeated value from collapsing

START = ("", "")
State = tuple[str, str]  # group, collective


@dataclass(frozen=True, slots=True)
class Event:
    """A collective of a group ('' = all ranks), and how long its ranks computed since their last one."""

    group: str
    kind: CollectiveKind
    size_bytes: int
    gap_ns: int


@dataclass(frozen=True, slots=True)
class Master:
    """The communication of all `npus` ranks in one order; `groups` names the ranks of each group."""

    npus: int
    events: tuple[Event, ...]
    groups: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Model:
    """What was learnt: follow-up probabilities, sizes per collective, gaps and the share of them that is zero."""

    npus: int
    groups: Mapping[str, tuple[int, ...]]
    follows: Mapping[State, Mapping[State, float]]
    sizes: Mapping[str, Mixture]
    gaps: Mixture | None
    no_gap: float
    length: int
    taken: frozenset[int]


def merge(graphs: GraphSet) -> Master:
    """The master trace of all ranks; InputError when ranks of a group do not run the same collectives in one order.

    Groups that work at once take turns in it: a collective stands behind as many as its ranks had to wait for.
    """
    npus = len(graphs.graph_of_rank)
    of_graph = [_communication(graph) for graph in graphs.graphs]
    queues = [list(of_graph[index]) for index in graphs.graph_of_rank.tolist()]
    place, turn = [0] * npus, [0] * npus
    everybody = tuple(range(npus))
    events: list[tuple[int, int, Event]] = []
    pending = list(range(npus))
    while pending:
        rank = pending.pop()
        if place[rank] == len(queues[rank]):
            continue
        members = graphs.groups.get(queues[rank][place[rank]].group, everybody)
        heads = [queues[m][place[m]] if place[m] < len(queues[m]) else None for m in members]
        first = heads[0]
        if first is None or any(head is None or _key(head) != _key(first) for head in heads):
            continue
        gap = round(sum(head.gap_ns for head in heads if head) / len(members))
        now = 1 + max(turn[member] for member in members)
        events.append((now, members[0], Event(first.group, first.kind, first.size_bytes, gap)))
        for member in members:
            place[member] += 1
            turn[member] = now
        pending += members
    if stuck := [rank for rank in everybody if place[rank] < len(queues[rank])]:
        rank, event = stuck[0], queues[stuck[0]][place[stuck[0]]]
        text = f"rank {rank} runs {event.kind.value} of {event.size_bytes} bytes, the other ranks of its group do not"
        expected = "the same collectives in the same order on all ranks of a group"
        raise InputError.at(graphs.graphs[graphs.graph_of_rank[rank]].path, text, expected=expected)
    return Master(npus, tuple(event for *_, event in sorted(events, key=itemgetter(0, 1))), dict(graphs.groups))


def _key(event: Event) -> tuple[str, CollectiveKind, int]:
    return event.group, event.kind, event.size_bytes


def _communication(graph: Graph) -> tuple[Event, ...]:
    """The collectives of a rank in an order its dependencies allow, each with the computation since the last one."""
    kinds = list(CollectiveKind)
    events, gap_ns = [], 0
    for row in waiting_order(graph.dep_offsets, graph.deps):
        if graph.kind[row] == NodeKind.COLLECTIVE:
            group, size_bytes = graph.group_names[graph.group[row]], int(graph.size_bytes[row])
            events.append(Event(group, kinds[graph.collective[row]], size_bytes, gap_ns))
            gap_ns = 0
        elif graph.kind[row] == NodeKind.COMPUTE and not graph.on_cpu[row]:
            gap_ns += int(graph.duration_ns[row])
    return tuple(events)


def together(masters: Sequence[Master], paths: Sequence[str]) -> list[Master]:
    """Master traces of several sets with one name for the same ranks; InputError where sets differ in ranks."""
    name_of: dict[tuple[int, ...], str] = {}
    found = []
    for master, path in zip(masters, paths, strict=True):
        if master.npus != masters[0].npus:
            message, expected = "sets that are learnt from together have as many ranks", f"{masters[0].npus}, as"
            raise InputError.at(path, message, expected=f"{expected} {paths[0]} has", found=str(master.npus))
        names = {"": ""} | {
            name: name_of.setdefault(tuple(ranks), name if name not in name_of.values() else f"{name}_{len(name_of)}")
            for name, ranks in master.groups.items()
        }
        events = tuple(replace(event, group=names[event.group]) for event in master.events)
        found.append(Master(master.npus, events, {names[name]: ranks for name, ranks in master.groups.items()}))
    return found


def learn(master: Master, *more: Master, path: str = "") -> Model:
    """The distributions of one or several master traces (`together`); InputError when nothing communicates."""
    masters = (master, *more)
    follows: dict[State, Counter[State]] = defaultdict(Counter)
    sizes: dict[str, list[float]] = defaultdict(list)
    for each in masters:
        before: State = START
        for event in each.events:
            state = (event.group, event.kind.value)
            follows[before][state] += 1
            sizes[event.kind.value].append(np.log2(max(1, event.size_bytes)))
            before = state
        follows[before][START] += bool(each.events)  # what ends begins again: collectives are as frequent as they were
    events = [event for each in masters for event in each.events]
    if not events:
        raise InputError.at(path, "there is no collective to learn from", expected="a trace with COMM_COLL nodes")
    gaps = np.array([event.gap_ns for event in events])
    return Model(
        npus=master.npus,
        groups={name: ranks for each in masters for name, ranks in each.groups.items()},
        follows={
            state: {after: counts[after] / counts.total() for after in sorted(counts)}
            for state, counts in follows.items()
        },
        sizes={kind: fit(np.array(values)) for kind, values in sorted(sizes.items())},
        gaps=fit(np.log2(gaps[gaps > 0])) if (gaps > 0).any() else None,
        no_gap=float((gaps == 0).mean()),
        length=-(-len(events) // len(masters)),
        taken=frozenset(event.size_bytes for event in events),
    )


def sample(model: Model, *, length: int = 0, seed: int = 0) -> Master:
    """A new master trace of `length` collectives (0 = as many as the source); no size of the source comes up again."""
    random = np.random.default_rng(seed)
    names = {group: f"group_{index}" for index, group in enumerate(sorted(model.groups), 1)} | {"": ""}
    events, state = [], START
    for _ in range(length or model.length):
        state = _next(model, state, random)
        state = state if state != START else _next(model, START, random)
        group, kind = state
        size_bytes = _unused(2.0 ** model.sizes[kind].sample(random), model.taken, CollectiveKind(kind))
        gap_ns = 0
        if model.gaps is not None and random.random() >= model.no_gap:
            gap_ns = max(1, round(2.0 ** model.gaps.sample(random)))
        events.append(Event(names[group], CollectiveKind(kind), size_bytes, gap_ns))
    groups = {names[group]: ranks for group, ranks in model.groups.items()}
    return Master(model.npus, tuple(events), groups)


def _next(model: Model, state: State, random: np.random.Generator) -> State:
    choices = model.follows[state]
    return list(choices)[random.choice(len(choices), p=list(choices.values()))]


def _unused(size: float, taken: frozenset[int], kind: CollectiveKind) -> int:
    """The nearest size that the source does not have; a barrier moves nothing."""
    if kind == CollectiveKind.BARRIER:
        return 0
    size_bytes = max(1, round(size))
    while size_bytes in taken:
        size_bytes += 1
    return size_bytes


def project(master: Master, npus: int = 0) -> list[bytes]:
    """A trace for every rank.

    On a multiple of the source's ranks a group stands once in every block of that many ranks, and collectives of all
    ranks span all of them; InputError for any other number.
    """
    npus = npus or master.npus
    if npus % master.npus:
        message = "the number of ranks must be a multiple of the source's"
        raise InputError.at("--npus", message, expected=f"a multiple of {master.npus}")
    blocks = npus // master.npus
    every = product(master.groups.items(), range(blocks))
    groups = {f"{name}_{at}": tuple(rank + at * master.npus for rank in ranks) for (name, ranks), at in every}
    rank_sets = {name: set(ranks) for name, ranks in master.groups.items()}
    return [_rank(master, rank, groups, rank_sets) for rank in meter().over(range(npus))]


def _rank(master: Master, rank: int, groups: Mapping[str, tuple[int, ...]], rank_sets: Mapping[str, set[int]]) -> bytes:
    """The trace of one rank: the groups, then its collectives in order with computation between."""
    block, place = divmod(rank, master.npus)
    nodes: list[Any] = [writer.groups(0, groups)]
    for event in master.events:
        if event.group and place not in rank_sets[event.group]:
            continue
        if event.gap_ns:
            _append(nodes, "compute", NodeKind.COMPUTE, {"duration_ns": event.gap_ns})
        attributes: dict[str, Any] = {"comm_type": int(CommType[event.kind.name]), "comm_size": event.size_bytes}
        if event.group:
            attributes["pg_name"] = f"{event.group}_{block}"
        _append(nodes, event.kind.value, NodeKind.COLLECTIVE, attributes)
    return writer.encode(writer.metadata(), nodes)


def _append(nodes: list[Any], name: str, kind: NodeKind, attributes: Mapping[str, Any]) -> None:
    number = len(nodes)
    place = {"is_cpu_op": False, **attributes}
    nodes.append(writer.node(number, f"{name}_{number}", kind, data_deps=[number - 1], attributes=place))


# --- Gaussian mixtures of one variable, fitted by expectation maximisation; as many components as the data bear out


@dataclass(frozen=True, slots=True)
class Mixture:
    """Weights, means and standard deviations of the components."""

    weights: Floats
    means: Floats
    deviations: Floats

    def sample(self, random: np.random.Generator) -> float:
        """A draw."""
        chosen = random.choice(len(self.weights), p=self.weights)
        return float(random.normal(self.means[chosen], self.deviations[chosen]))

    def log_parts(self, values: Floats) -> Floats:
        """Log density of every value (row) under every component (column), weights included."""
        spread = (values[:, None] - self.means) / self.deviations
        densities: Floats = np.log(self.weights / self.deviations) - 0.5 * np.log(2 * np.pi) - 0.5 * spread**2
        return densities


def fit(values: Floats) -> Mixture:
    """The mixture with the least Bayesian information criterion; `values` must not be empty."""
    distinct = np.unique(values)  # where one value is most of them, quantiles of all would all be that value
    counts = range(1, min(MAX_COMPONENTS, len(distinct)) + 1)
    fitted = [_fit(values, count, starts) for count in counts for starts in (values, distinct)]

    def criterion(mixture: Mixture) -> float:
        likelihood = float(np.logaddexp.reduce(mixture.log_parts(values), axis=1).sum())
        return (3 * len(mixture.weights) - 1) * log(len(values)) - 2 * likelihood

    return min(fitted, key=criterion)


def _fit(values: Floats, count: int, starts: Floats) -> Mixture:
    """Expectation maximisation from means at equal quantiles of `starts`."""
    means = np.quantile(starts, (np.arange(count) + 0.5) / count)
    spread = max(float(np.std(values)) / count, SMALLEST_DEVIATION)
    mixture = Mixture(np.full(count, 1 / count), means, np.full(count, spread))
    before = -np.inf
    for _ in range(STEPS):
        mixture, likelihood = _step(mixture, values)
        if likelihood - before < 1e-7 * len(values):
            break
        before = likelihood
    return mixture


def _step(mixture: Mixture, values: Floats) -> tuple[Mixture, float]:
    """One round: each component's share in each value, then the components that suit; the likelihood before."""
    parts = mixture.log_parts(values)
    total = np.logaddexp.reduce(parts, axis=1)
    share = np.exp(parts - total[:, None])
    mass = share.sum(axis=0) + 1e-12
    means = (share * values[:, None]).sum(axis=0) / mass
    variance = (share * (values[:, None] - means) ** 2).sum(axis=0) / mass
    deviations = np.sqrt(np.maximum(variance, SMALLEST_DEVIATION**2))
    return Mixture(mass / mass.sum(), means, deviations), float(total.sum())


# --- how like their sources they are

WITHIN = 1.05
"""Sizes and times this close count as equal: none of the source's may come up again."""
Score = tuple[float, float]
"""A distance or a sum, and the level at which it is reached by chance."""


def kolmogorov_smirnov(one: Sequence[float], other: Sequence[float], within: float = 1.0) -> Score:
    """Largest difference of two empirical distributions, and its level (asymptotic; Stephens 1970 for few values).

    Values whose ratio is at most `within` count as equal.

    >>> kolmogorov_smirnov([1, 2, 3, 4], [1, 2, 3, 4]), kolmogorov_smirnov([8] * 9, [9] * 9, within=1.2)
    ((0.0, 1.0), (0.0, 1.0))
    """
    first, second = np.sort(one), np.sort(other)
    over = [
        float((np.searchsorted(a, a, "right") / len(a) - np.searchsorted(b, a * within, "right") / len(b)).max())
        for a, b in ((first, second), (second, first))
    ]
    distance = max(0.0, *over)
    root = sqrt(len(first) * len(second) / (len(first) + len(second)))
    scaled = (root + 0.12 + 0.11 / root) * distance
    terms = [(-1) ** (k - 1) * exp(-2 * (k * scaled) ** 2) for k in range(1, 101)]
    return distance, min(1.0, max(0.0, 2 * fsum(terms))) if scaled > 0.2 else 1.0


def chi_square(one: Counter[Any], other: Counter[Any]) -> Score:
    """Homogeneity of two tables of counts, per degree of freedom, and its level (Wilson and Hilferty 1931).

    >>> total, level = chi_square(Counter(a=40, b=60), Counter(a=60, b=40))
    >>> round(total, 9), round(level, 3)  # 8 at one degree of freedom: 0.0047
    (8.0, 0.005)
    """
    kinds = sorted(one | other)
    ratio, freedom = sqrt(other.total() / one.total()), len(kinds) - 1
    total = fsum((ratio * one[kind] - other[kind] / ratio) ** 2 / (one[kind] + other[kind]) for kind in kinds)
    if not freedom or total < 1e-9:
        return 0.0, 1.0
    spread = 2 / (9 * freedom)
    return total / freedom, erfc(((total / freedom) ** (1 / 3) - 1 + spread) / sqrt(2 * spread)) / 2


def likeness(source: Master, made: Master) -> dict[str, Any]:
    """Scores of what was made against one of its sources: sizes by collective, gaps, and collectives by kind."""
    sizes = {
        kind: kolmogorov_smirnov(_sizes(source, kind), _sizes(made, kind), WITHIN)
        for kind in sorted({event.kind.value for event in source.events} & {event.kind.value for event in made.events})
    }
    gaps = ([event.gap_ns for event in master.events] for master in (source, made))
    kinds = [Counter(event.kind.value for event in master.events) for master in (source, made)]
    return {
        "collectives": len(source.events),
        "sizes": {kind: _named("distance", score) for kind, score in sizes.items()},
        "gaps": _named("distance", kolmogorov_smirnov(next(gaps), next(gaps), WITHIN)),
        "kinds": _named("chi_square_per_degree", chi_square(*kinds)),
    }


def _sizes(master: Master, kind: str) -> list[float]:
    return [event.size_bytes for event in master.events if event.kind.value == kind]


def _named(name: str, score: Score) -> dict[str, float]:
    return {name: score[0], "level": score[1]}


def learnt(model: Model, masters: Iterable[Master]) -> dict[str, Any]:
    """What a model holds: how often each collective comes, its sizes and the gaps as mixtures, what follows what."""
    counts = Counter(event.kind.value for master in masters for event in master.events)
    return {
        "npus": model.npus,
        "groups": len(model.groups),
        "length": model.length,
        "states": len(model.follows) - 1,
        "kinds": {
            kind: {"share": counts[kind] / counts.total(), "log2_bytes": _components(mixture)}
            for kind, mixture in model.sizes.items()
        },
        "no_gap": model.no_gap,
        "log2_gap_ns": _components(model.gaps) if model.gaps else [],
    }


def _components(mixture: Mixture) -> list[dict[str, float]]:
    """Components by descending weight."""
    rows = zip(mixture.weights.tolist(), mixture.means.tolist(), mixture.deviations.tolist(), strict=True)
    return [{"weight": weight, "mean": mean, "deviation": deviation} for weight, mean, deviation in sorted(rows)[::-1]]
