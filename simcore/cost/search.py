"""The best parallelisation of a model on a cluster: all that fit, pruned by a bound that keeps the optimum.

A candidate's bound (`lower_bound_s`) is what no order of its cells can beat; its memory is exact. In order of their
bounds, candidates are simulated unless what is already simulated proves that they can be none of: the best few, the
best of a value of an axis, a point of the front of time against memory. All three are therefore those of trying all.

A study, what `simcore search` is given, is a YAML or JSON file with a model, a cluster, a batch and what may vary::

    model: gpt-175b                  # a shipped model, a config.json, or {layers: 96, hidden: 12288, ...}
    seq: 2048
    accelerators: 1024
    global_batch: 1536
    cluster: selene                  # or {accelerator: H100, fabric: hgx-h100}
    micro_batch: [1, 2, 4]           # these lists are optional
    recompute: [none, selective, full]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count, product
from math import ceil
from operator import attrgetter
from pathlib import Path
from typing import Any

from simcore.cost.closed.transformer import divisors
from simcore.cost.predict import Prediction, busy_ns, lower_bound_s, mean_bound_s, predict, stage_bound_s
from simcore.cost.step import cells_of, cut_of, end_cells
from simcore.cost.systems import Cluster
from simcore.cost.words import check_size, of_size, plan_word, read_cluster, read_model
from simcore.documents import read
from simcore.errors import InputError, Problems
from simcore.front import front
from simcore.memory import collection_paused
from simcore.model.effects import idle
from simcore.model.memory import fullest, needs
from simcore.model.plan import Plan, Recompute, divides, most_parts, split
from simcore.model.shape import Model
from simcore.progress import meter
from simcore.units import parse_bytes
from simcore.workload.loops import schedules

EVEN, UNEVEN = "even", "uneven"
SCHEDULES = tuple(name for name in schedules.names() if name != "interleaved")  # that is 1f1b with chunks


@dataclass(frozen=True, slots=True)
class Study:
    """A model, a batch, a number of accelerators and what may vary; an empty axis takes all values that divide.

    Without `recompute_layers` all are tried, and no more than it takes to fit. Stages are "even", or "uneven" where the
    busiest then has less to do.

    `names`: what the model and the cluster are called, or files that describe them.
    """

    model: Model
    plan: Plan
    accelerators: int
    cluster: Cluster
    tp: Sequence[int] = ()
    pp: Sequence[int] = ()
    cp: Sequence[int] = ()
    ep: Sequence[int] = ()
    micro_batch: Sequence[int] = (1, 2, 4, 8)
    virtual_stages: Sequence[int] = ()
    recompute: Sequence[Recompute] = ("none", "selective", "full")
    zero: Sequence[int] = (0, 1, 2, 3)
    shard: Sequence[int] = ()
    recompute_layers: Sequence[int] = ()
    cuts: Sequence[str] = (EVEN, UNEVEN)
    schedule: Sequence[str] = SCHEDULES
    memory_bytes: int = 0
    names: tuple[str, ...] = ("", "")

    @property
    def limit_bytes(self) -> float:
        """Memory a candidate may use: 94 % of the device, the rest is the runtime's."""
        return self.memory_bytes or 0.94 * self.cluster.memory_bytes


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run the step, with its memory and its time."""

    plan: Plan
    memory_bytes: float
    prediction: Prediction

    @property
    def step_s(self) -> float:
        """The simulated step."""
        return self.prediction.step_s


SLOWEST = 3.0  # steps slower than so many times the best are no trade for memory that anyone makes

Choice = tuple[str, int | str]  # an axis and its value


@dataclass(slots=True)
class Found:
    """What a search saw: the best, fastest first, and how many candidates there were, fitted and were simulated.

    `leaders` is the fastest of every value of every axis; `front` what nothing beats in both time and memory, up to
    `SLOWEST` times the best; `least_bytes` the memory of the candidate that needs the least.
    """

    best: list[Candidate] = field(default_factory=list)
    tried: int = 0
    fitting: int = 0
    simulated: int = 0
    front: list[Candidate] = field(default_factory=list)
    leaders: dict[Choice, Candidate] = field(default_factory=dict)
    least_bytes: int = 0

    def misses(self, plan: Plan, memory_bytes: int, bound_s: float, top: int) -> bool:
        """Whether a candidate, as fast as its bound, would change any answer."""
        soonest_s = bound_s * _ROUNDING
        if len(self.best) < top or soonest_s < self.best[-1].step_s:
            return True
        leaders = map(self.leaders.get, axes(plan).items())
        if any(leader is None or soonest_s < leader.step_s for leader in leaders):
            return True
        if soonest_s > SLOWEST * self.best[0].step_s:
            return False
        return not any(each.step_s <= soonest_s and each.memory_bytes <= memory_bytes for each in self.front)

    def add(self, done: Candidate, top: int) -> None:
        """Enter a simulated candidate."""
        self.simulated += 1
        self.best = nsmallest(top, [*self.best, done], key=lambda each: each.step_s)
        unbeaten = front([*self.front, done], attrgetter("step_s"), attrgetter("memory_bytes"))
        self.front = [one for one in unbeaten if one.step_s <= SLOWEST * self.best[0].step_s]
        for choice in axes(done.plan).items():
            leader = self.leaders.get(choice)
            if leader is None or done.step_s < leader.step_s:
                self.leaders[choice] = done


_SPLITS = ("tp", "pp", "cp", "ep", "dp", "virtual_stages", "micro_batch")
AXES = (*_SPLITS, "recompute", "recompute_layers", "zero", "shard", "cuts", "schedule")


def axes(plan: Plan) -> dict[str, int | str]:
    """What a candidate chose on every axis; of numbers that follow from others, whether there are any."""
    told = {"schedule": plan.schedule_name, "cuts": UNEVEN if plan.cuts else EVEN}
    told["recompute_layers"] = "some" if plan.recompute_layers else "all"
    return {name: told.get(name) or getattr(plan, name) for name in AXES}


MOST, MOST_SEQUENCES, MOST_TOKENS = 10**6, 10**5, 1 << 24  # beyond, a search takes days


def read_study(path: str | Path) -> Study:
    """The study in a file; InputError lists everything wrong with it, each with its place."""
    with Problems() as problems:
        root = read(path, problems)
        needed = ("model", "seq", "accelerators", "global_batch", "cluster")
        root.keys(required=needed, optional=(*_VARY, *_FIXED, "memory"))
        if problems.found:
            raise InputError(problems.found)
        fixed = {name: plan_word(name, root[name]) for name in _FIXED if name in root}
        count = root["accelerators"].integer(1, MOST)
        batch, seq = root["global_batch"].integer(1, MOST_SEQUENCES), root["seq"].integer(1, MOST_TOKENS)
        model, cluster = read_model(root["model"]), of_size(read_cluster(root["cluster"]), count)
        usual: dict[str, Any] = {"scatter_pipeline": True, "context": "ring", "dtype": cluster.device.wide_dtype}
        plan = Plan(count, seq, global_batch=batch, **(cluster.software.usual | usual | fixed))
        said = ((name, root[name].sequence(), _CHOICES.get(name)) for name in _VARY if name in root)
        varying = {name: [plan_word(name, item, choices) for item in items] for name, items, choices in said}
        limit = root["memory"].quantity(parse_bytes) if "memory" in root else 0
        names = tuple(word if isinstance(word := root[name].value, str) else "" for name in ("model", "cluster"))
        study = Study(model, plan, count, cluster, memory_bytes=limit, names=names, **varying)
        for word, lacking in _never_acting(study, fixed) if not problems.found else ():
            root[word].problem("has no effect here", expected=lacking)
    cluster.device.peak(plan.dtype)
    check_size(cluster, count)
    return study


def _never_acting(study: Study, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Choices that change nothing, however far a study lets a model be cut, and what they lack."""
    left = dict.fromkeys(names, "")
    tp, cp, pp = (1 if some and max(some) == 1 else 2 for some in (study.tp, study.cp, study.pp))
    wide = study.plan.but(world_size=2 * tp * cp * pp, tp=tp, cp=cp, pp=pp, sequence_parallel=tp > 1)
    for zero, recompute, layers in product(study.zero, study.recompute, study.recompute_layers or (0,)):
        left = dict(idle(study.model, wide.but(zero=zero, recompute=recompute, recompute_layers=layers), left))
    yield from left.items()


# Where a study may say less than a plan, or other words.
_CHOICES = {"schedule": list(SCHEDULES), "cuts": [EVEN, UNEVEN]}
_VARY = tuple(name for name in AXES if name != "dp")  # that follows
_GIVEN = ("world_size", "seq", "global_batch", "sequence_parallel", "expert_tp")
_FIXED = [field.name for field in fields(Plan) if field.name not in (*_VARY, *_GIVEN)]


Family = tuple[Plan, list[Plan]]
"""Plans that differ only in what replicas share, and one that shares nothing."""


def families(study: Study) -> Iterator[Family]:
    """All candidates: plans whose ranks and batches divide evenly; layers need not.

    Tensor parallelism stays inside a node where a study does not say its degrees. A context rank has an early and a
    late piece of every sequence, so that causal attention is balanced; experts are spread over the ranks of a stage.
    """
    model, total, seq = study.model, study.accelerators, study.plan.seq
    tensor = study.tp or [tp for tp in divisors(model.heads) if tp <= study.cluster.fabric.node_ranks]
    context = [cp for cp in study.cp or divisors(total) if cp == 1 or seq % (2 * cp) == 0]
    stages = [pp for pp in study.pp or divisors(total) if pp <= most_parts(model, pp)]
    for tp, pp, cp in product(tensor, stages, context):
        if total % (tp * pp * cp) == 0 and model.heads % tp == 0:
            yield from _with_degrees(study, study.plan.but(world_size=total, tp=tp, pp=pp, cp=cp))


def _with_degrees(study: Study, plan: Plan) -> Iterator[Family]:
    """The candidates of one split of the ranks."""
    model = study.model
    most = most_parts(model, 2 * plan.pp) // plan.pp if plan.pp > 1 else 1  # chunks of a stage, of several
    splits = [d for d in study.virtual_stages or divisors(-(-model.depth // plan.pp)) if d <= most]
    number = model.experts.count if model.experts else 1
    experts = [ep for ep in study.ep or divisors(number) if number % ep == 0]
    for micro, chunks, schedule in product(study.micro_batch, splits, study.schedule):
        count, rest = divmod(plan.global_batch, plan.dp * micro)
        if rest or count < 1 or not _exists(schedule, plan.pp, chunks, count, most):
            continue
        own = schedules.family(schedule)
        chosen = plan.but(
            micro_batch=micro,
            virtual_stages=chunks if own.any_chunks or own.chunks == 1 else own.chunks,
            # On one stage all schedules are the same.
            schedule="1f1b" if plan.pp == 1 else "interleaved" if chunks > 1 else schedule,
            sequence_parallel=plan.tp > 1,
        )
        spread = [one for one in (chosen.but(ep=ep) for ep in experts) if divides(model, one)]
        # Fused attention has nothing that selective recomputation could drop: the same as none. Of whole layers all are
        # computed again, or some of every part of the model.
        fused = chosen.fused_attention and chosen.recompute_modules == Plan.recompute_modules
        again = [("full", some) for some in study.recompute_layers or (0,)] * ("full" in study.recompute)
        kinds = [(kind, 0) for kind in study.recompute if kind == "none" or (kind == "selective" and not fused)]
        for each, (recompute, some) in product(spread, [*kinds, *again]):
            base = each.but(recompute=recompute, recompute_layers=some)
            uneven = _balanced(study, base) if plan.pp > 1 and UNEVEN in study.cuts else ()
            for cuts in [()] * (EVEN in study.cuts) + [uneven] * bool(uneven):
                cut = base.but(cuts=cuts)
                yield cut, [cut.but(zero=zero, shard=shard) for zero, shard in _shared(study, cut)]


def _shared(study: Study, plan: Plan) -> Iterator[tuple[int, int]]:
    """Levels of ZeRO, and the ranks that share where not all replicas do: those of a node."""
    if not plan.repeats(study.model):
        yield 0, 0
        return
    here = study.cluster.fabric.node_ranks // plan.tp
    for zero in study.zero:
        within = study.shard or (0, here)
        yield from ((zero, 0) for _ in range(zero < _SHARES or 0 in within))
        if zero == _SHARES:
            yield from ((zero, some) for some in within if 1 < some < plan.replicas and plan.replicas % some == 0)


_SHARES = 3  # the ZeRO level that shares parameters


def _exists(schedule: str, pp: int, chunks: int, count: int, most: int) -> bool:
    """Whether a schedule is defined for these numbers; chunks interleave 1F1B only."""
    if chunks > 1 and (schedule != "1f1b" or count % pp):
        return False
    if schedule == "zb-v":
        return pp > 1 and most > 1
    return schedule != "dualpipe" or (pp % 2 == 0 and count % 2 == 0 and count >= 2 * pp)


def search(study: Study, top: int = 10) -> Found:
    """The `top` fastest candidates that fit, the best of every choice, and the front: as if all were simulated."""
    with collection_paused():
        tried = sized(study)
        fitting = [(plan, size) for plan, size in tried.items() if size <= study.limit_bytes]
        found = Found(tried=len(tried), fitting=len(fitting), least_bytes=min(tried.values(), default=0))
        _simulate(found, study, fitting, top)
    return found


def sized(study: Study) -> dict[Plan, int]:
    """All candidates and the bytes they need, with those that compute again as many layers as it takes to fit."""
    some, sizes = dict(families(study)), dict[Plan, list[int]]()
    for base, plans in some.items():
        alike = needs(study.model, base)
        sizes[base] = [fullest(alike, plan).total for plan in plans]
    found = {plan: size for base, plans in some.items() for plan, size in zip(plans, sizes[base], strict=True)}
    if not study.recompute_layers:
        for base, plans in some.items():
            most = sizes.get(base.but(recompute="none"), []) if base.recompute == "full" else []
            found |= _partial(study, base, zip(plans, sizes[base], most, strict=False))
    return found


def _partial(study: Study, base: Plan, sizes: Iterable[tuple[Plan, int, int]]) -> Iterator[tuple[Plan, int]]:
    """Of plans with their bytes when all layers are done again, and when none are, those that fit between the two.

    No more layers of every part of the model are done again than that takes.
    """
    limit, deepest = study.limit_bytes, max(map(len, split(study.model.depth, base.outline.parts, base.cuts)))
    alike = cache(lambda layers: needs(study.model, base.but(recompute_layers=layers)))
    for plan, least, most in sizes:
        if not least <= limit < most:
            continue
        fewest = ceil(deepest * (most - limit) / (most - least))  # and room for one that is done again
        for layers in range(max(1, fewest), deepest):
            some = plan.but(recompute_layers=layers)
            if (size := fullest(alike(layers), some).total) <= limit:
                yield some, size
                break


def _balanced(study: Study, plan: Plan) -> tuple[int, ...]:
    """Layers of the parts of a plan when they are taken from the busiest stage, one by one, as long as that helps.

    () where nothing does: where all layers take as long, and neither end more than one of them.
    """
    model, outline, cut = study.model, plan.outline, cut_of(plan.but(zero=0))
    if not (each := _each_ns(model, cut.but(pp=1), study.cluster)):
        return ()
    sizes, best = [len(layers) for layers in split(model.depth, cut.pp)], cut.cuts
    busy = busy_ns(model, cut, study.cluster, outline)
    bounds_ns = [busy.max()]
    for _ in range(model.depth):
        most, least = int(busy.argmax()), int(busy.argmin())
        giver, taker = max(plan.parts(most), key=sizes.__getitem__), min(plan.parts(least), key=sizes.__getitem__)
        if sizes[giver] == 1 or busy[most] - busy[least] <= min(each):
            break
        sizes[giver], sizes[taker] = sizes[giver] - 1, sizes[taker] + 1
        cut = cut.but(cuts=tuple(sizes))
        busy = busy_ns(model, cut, study.cluster, outline)
        if busy.max() < min(bounds_ns):
            best = cut.cuts
        bounds_ns.append(busy.max())
    return best


@lru_cache(maxsize=4096)
def _each_ns(model: Model, cut: Plan, cluster: Cluster) -> list[int]:
    """How long a stage works on each kind of layer, nothing where no end of the model takes longer than all others."""
    each = [cell.busy_ns for cell, _ in cells_of(model, cut, cluster, 0)]
    both = (end_cells(model, cut, cluster, last=last) for last in (False, True))
    ends = [sum(cell.busy_ns * many for cell, many in cells) for cells in both]
    return [] if len(each) == 1 and max(ends) <= each[0] else each


_UNSHARED = attrgetter(*(name for name in AXES if name not in {"zero", "shard"}))  # what bounds of stages depend on


def _simulate(found: Found, study: Study, fitting: Sequence[tuple[Plan, int]], top: int) -> None:
    """Enter plans in order of their bounds, those that many share first, and while they may matter."""
    model, cluster = study.model, study.cluster
    shared: dict[Any, list[tuple[Plan, int]]] = {}
    for plan, size in fitting:
        shared.setdefault(_UNSHARED(plan), []).append((plan, size))
    turn = count()
    queue = [(mean_bound_s(model, some[0][0], cluster, shared=False), 0, next(turn), some) for some in shared.values()]
    heapify(queue)
    meter().tell = lambda: 1 - len(queue) / len(shared)
    while queue:
        bound_s, level, _, some = heappop(queue)
        some = [(plan, size) for plan, size in some if found.misses(plan, size, bound_s, top)]
        if level == _EXACT:
            for plan, size in some:
                found.add(Candidate(plan, size, predict(model, plan, cluster)), top)
        elif level == _SHARED:
            for one in some:
                alone_s = mean_bound_s(model, one[0], cluster, shared=True)
                heappush(queue, (max(bound_s, alone_s), _APART, next(turn), [one]))
        elif some:
            bound = lower_bound_s if level == _APART else stage_bound_s
            heappush(queue, (bound(model, some[0][0], cluster), level + 1, next(turn), some))


_SHARED, _APART, _EXACT = 1, 2, 3  # levels of bounds: from the first plans are alone, behind the last simulated
_ROUNDING = 1 - 1e-9  # a bound and its step add up the same times in another order


@dataclass(frozen=True, slots=True)
class Rival:
    """What the winner is compared with: the second, or the fastest of all that differ in a choice, or in several."""

    choice: str
    candidate: Candidate
    step_s: float
    memory_bytes: float
    parts_s: dict[str, float]


def rivals(found: Found) -> list[Rival]:
    """Why the winner wins: how much more (seconds by part, bytes) the second and the best of every other choice take.

    Positive is what the winner saves, negative what it pays for that. The best of several choices is told once.
    """
    chosen = axes(found.best[0].plan)
    order = sorted(found.leaders, key=lambda choice: (AXES.index(choice[0]), str(choice[1]).zfill(12)))
    others = [(f"{axis} {value}", found.leaders[axis, value]) for axis, value in order if chosen[axis] != value]
    told: dict[Plan, tuple[Candidate, list[str]]] = {}
    for choice, one in [*(("second", one) for one in found.best[1:2]), *others]:
        told.setdefault(one.plan, (one, []))[1].append(choice)
    made, winner = [], found.best[0]
    for one, choices in told.values():
        parts = {name: one.prediction.parts[name] - took for name, took in winner.prediction.parts.items()}
        more = one.step_s - winner.step_s, one.memory_bytes - winner.memory_bytes
        made.append(Rival(", ".join(choices), one, *more, parts))
    return made
