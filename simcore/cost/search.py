"""The best parallelisation of a model on a cluster: all that fit, pruned by a bound that keeps the optimum.

A candidate's bound is what its busiest stage computes plus what follows the last backward: no schedule can be shorter.
Candidates are simulated in order of their bounds until the next bound exceeds the worst of the best found, so the
result is the optimum of the model, as if all had been simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import product
from math import isqrt

from simcore.cost.memory import memory_bytes
from simcore.cost.predict import Cluster, Job, Prediction, Recompute, lower_bound_s, predict

__all__ = ["Candidate", "Found", "Study", "candidates", "pareto", "search", "why"]


@dataclass(frozen=True, slots=True)
class Study:
    """A model, a batch, a number of accelerators and what may vary."""

    job: Job
    accelerators: int
    cluster: Cluster
    tp: Sequence[int] = ()
    pp: Sequence[int] = ()
    micro_batch: Sequence[int] = (1, 2, 4, 8)
    chunks: Sequence[int] = ()
    recompute: Sequence[Recompute] = ("none", "selective", "full")
    zero: Sequence[int] = (0, 1)
    schedule: Sequence[str] = ("1f1b",)
    memory_bytes: int = 0

    @property
    def limit_bytes(self) -> float:
        """Memory a candidate may use: 94 % of the device, the rest is the runtime's."""
        return self.memory_bytes or 0.94 * self.cluster.memory_bytes


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run the job, with its memory and, once simulated, its time."""

    job: Job
    memory_bytes: float
    bound_s: float
    prediction: Prediction | None = None

    @property
    def step_s(self) -> float:
        """The simulated step, the bound before that."""
        return self.prediction.step_s if self.prediction else self.bound_s


@dataclass(frozen=True, slots=True)
class Found:
    """What a search saw: the best, fastest first, and how many candidates there were, fitted and were simulated."""

    best: tuple[Candidate, ...]
    tried: int
    fitting: int
    simulated: int
    front: tuple[Candidate, ...] = field(default=())


def divisors(number: int) -> list[int]:
    """All divisors, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def candidates(study: Study) -> Iterator[Job]:
    """Every job of a study that divides evenly; tensor parallelism stays inside a node."""
    model, total = study.job.model, study.accelerators
    inside = [d for d in divisors(model.heads) if d <= study.cluster.fabric.node_ranks and total % d == 0]
    for tp in study.tp or inside:
        for pp in study.pp or [d for d in divisors(model.layers) if total % (tp * d) == 0]:
            if total % (tp * pp) == 0 and model.layers % pp == 0:
                yield from _with_degrees(study, tp, pp)


def _with_degrees(study: Study, tp: int, pp: int) -> Iterator[Job]:
    """The candidates of one split into tensor, pipeline and data parallelism."""
    dp = study.accelerators // (tp * pp)
    splits = [d for d in divisors(study.job.model.layers // pp) if pp > 1 or d == 1]
    choices = product(study.micro_batch, study.chunks or splits, study.recompute, study.zero, study.schedule)
    for micro, chunks, recompute, zero, schedule in choices:
        count, rest = divmod(study.job.global_batch, dp * micro)
        if rest or count < 1 or not _exists(schedule, pp, chunks, count, splits):
            continue
        if recompute == "selective" and study.job.model.attention == "flash":
            continue  # fused attention has nothing to drop: the same as none
        yield replace(
            study.job,
            micro_batch=micro,
            tp=tp,
            pp=pp,
            dp=dp,
            chunks=2 if schedule in _TWO_CHUNKS else chunks,
            schedule="interleaved" if chunks > 1 else schedule,
            sequence_parallel=tp > 1,
            recompute=recompute,
            zero=zero if dp > 1 else 0,
        )


_TWO_CHUNKS = {"zb-v", "dualpipe"}


def _exists(schedule: str, pp: int, chunks: int, count: int, splits: Sequence[int]) -> bool:
    """Whether a schedule is defined for these numbers; chunks interleave 1F1B only."""
    if chunks not in splits or (chunks > 1 and (schedule != "1f1b" or count % pp)):
        return False
    if schedule == "zb-v":
        return pp > 1 and 2 in splits
    return schedule != "dualpipe" or (pp % 2 == 0 and count % 2 == 0 and count >= 2 * pp)


def search(study: Study, top: int = 10) -> Found:
    """The `top` fastest candidates that fit, exactly, and the front of time against memory among the simulated."""
    jobs = list(dict.fromkeys(candidates(study)))
    sized = [(job, memory_bytes(job)) for job in jobs]
    fitting = [
        Candidate(job, size, lower_bound_s(job, study.cluster)) for job, size in sized if size <= study.limit_bytes
    ]
    fitting.sort(key=lambda one: one.bound_s)
    best: list[Candidate] = []
    simulated: list[Candidate] = []
    for one in fitting:
        if len(best) == top and one.bound_s >= best[-1].step_s:
            break
        done = replace(one, prediction=predict(one.job, study.cluster))
        simulated.append(done)
        best = nsmallest(top, [*best, done], key=lambda each: each.step_s)
    return Found(tuple(best), len(jobs), len(fitting), len(simulated), tuple(pareto(simulated)))


def pareto(some: Sequence[Candidate]) -> Iterator[Candidate]:
    """Those that nothing beats in both time and memory, fastest first."""
    least = float("inf")
    for one in sorted(some, key=lambda each: (each.step_s, each.memory_bytes)):
        if one.memory_bytes < least:
            least = one.memory_bytes
            yield one


def why(best: Sequence[Candidate]) -> list[str]:
    """What sets the winner apart from the runner-up, largest difference first."""
    if len(best) < 2 or best[0].prediction is None or best[1].prediction is None:
        return []
    first, second = best[0].prediction.parts, best[1].prediction.parts
    gaps = sorted(((second[name] - first[name], name) for name in first), key=lambda gap: -abs(gap[0]))
    return [f"{name} {'-' if gap > 0 else '+'}{abs(gap):.3g} s" for gap, name in gaps if abs(gap) > 1e-6][:4]
