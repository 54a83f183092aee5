"""Rows of measurements and the questions they ask of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import fsum
from typing import Any, NamedTuple

from simcore.compute.accelerators import accelerator
from simcore.cost.predict import Prediction, predict, predict_layer
from simcore.cost.systems import CLUSTERS, Cluster
from simcore.library import table
from simcore.model.memory import peak
from simcore.model.plan import Plan
from simcore.model.shape import Model
from simcore.system.collectives.nccl import Fabric, collective_s
from simcore.workload.model import CollectiveKind


class Job(NamedTuple):
    """A model and how its training step is spread."""

    model: Model
    plan: Plan


def job(model: Model, seq: int, global_batch: int, *, dp: int = 1, **choices: Any) -> Job:
    """A job from all of its degrees; context ranks pass keys and values around unless it says otherwise."""
    return Job(model, Plan.of(seq, global_batch, dp=dp, **{"context": "ring", **choices}))


def stated(row: Mapping[str, Any], model: Model, **choices: Any) -> Job:
    """A job from the degrees and the batch that a row states; one sequence a micro-batch where it states none."""
    degrees, batch = row["parallel"], row["batch"]
    said = {name: degrees[name] for name in ("tp", "pp", "dp")} | {"micro_batch": batch.get("micro") or 1}
    if degrees["pp"] > 1:
        said["virtual_stages"] = degrees.get("vp") or 1
    return job(model, row["model"]["seq"], batch["global_"], **(said | choices))


class Question:
    """What a measurement answers: a configuration, and how to predict it."""

    __slots__ = ()

    def explained(self) -> Prediction:
        """The prediction with its parts."""
        raise NotImplementedError

    def seconds(self) -> float:
        """The predicted time, or what is asked for in its place."""
        return self.explained().step_s


@dataclass(frozen=True, slots=True)
class Step(Question):
    """A training step. Where the source leaves a choice open, `jobs` are the candidates: the fastest that fits.

    `phase` "forward" or "backward" asks for one layer's pass alone. `cluster`: a known one's name, or one of its own.
    """

    jobs: tuple[Job, ...]
    cluster: str | Cluster
    phase: str = ""

    def system(self) -> Cluster:
        """What it runs on."""
        return CLUSTERS[self.cluster] if isinstance(self.cluster, str) else self.cluster

    def explained(self) -> Prediction:
        """The prediction with its parts."""
        if self.phase:
            return predict_layer(*self.jobs[0], self.system(), self.phase)
        return predict(*self.chosen(), self.system())

    def chosen(self) -> Job:
        """The fastest candidate that fits."""
        cluster = self.system()
        fitting = [job for job in self.jobs if len(self.jobs) == 1 or peak(*job).total <= cluster.memory_bytes]
        return min(fitting or self.jobs, key=lambda job: predict(*job, cluster).step_s)


@dataclass(frozen=True, slots=True)
class Collective(Question):
    """A collective benchmark of `size_bytes` on `ranks`, spread over `nodes`."""

    kind: CollectiveKind
    size_bytes: int
    ranks: int
    nodes: int
    fabric: Fabric

    def explained(self) -> Prediction:
        """The predicted time, in one part."""
        whole_s = collective_s(self.kind, self.size_bytes, self.ranks, self.ranks // self.nodes, self.fabric)
        return Prediction(whole_s, {"collective": whole_s})


@dataclass(frozen=True, slots=True)
class Held(Question):
    """The most memory a rank holds in a step; the "seconds" of its prediction are bytes.

    `part`: "" all of it, "activations" that are kept, or "states": weights, gradients and the optimizer's.
    `reserved_bytes`: what an allocator has beside what is asked of it, of `most_bytes` for both.
    """

    job: Job
    part: str = ""
    reserved_bytes: int = 0
    most_bytes: int = 0

    def explained(self) -> Prediction:
        """The bytes by what they hold, on the fullest stage."""
        parts, asked = peak(*self.job)._asdict(), _PARTS.get(self.part)
        held = {name: float(size) for name, size in parts.items() if asked is None or name in asked}
        if self.reserved_bytes:
            held["reserved"] = max(0.0, min(self.reserved_bytes, self.most_bytes - fsum(held.values())))
        return Prediction(fsum(held.values()), held)


_PARTS = {"activations": ("activations",), "states": ("parameters", "gradients", "optimizer")}


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, in seconds or bytes, the question it answers, and what a peer predicted for it (0: nothing).

    `source`: who published it, as its file says; `spread`: by what share of it runs differ, 0 where it does not say.
    """

    id: str
    measured: float
    question: Question
    peer: float = 0.0
    source: str = ""
    spread: float = 0.0


@cache
def named(source: str) -> dict[str, list[list[str]]]:
    """What a source's tables call their models -> what these may be, in words of the table of shapes."""
    found: dict[str, list[list[str]]] = {}
    for whose, name, words in table(__file__, "shapes.txt"):
        if whose == source:
            found.setdefault(name, []).append(words.split())
    return found


def step_of(row: Row) -> Step | None:
    """The step that a row measures, None where it measures something else or a part of one."""
    return row.question if isinstance(row.question, Step) and not row.question.phase else None


def selected(document: Mapping[str, Any], prefix: str) -> Iterator[Mapping[str, Any]]:
    """Rows of a file whose id begins so."""
    return (row for row in document.get("rows", ()) if str(row.get("id", "")).startswith(prefix))


def measured_s(row: Mapping[str, Any], flops: float = 0.0) -> float:
    """The stated step time, else `flops` (those of its shape, as its source counts them) at the stated rate."""
    measured = row["measured"]
    for key, in_a_second in (("iter_s", 1), ("iter_s_implied", 1), ("iter_ms", 1e3)):
        if key in measured:
            return float(measured[key] / in_a_second)
    hardware = row["hardware"]
    if "tflops_per_gpu" in measured:
        flops_per_s = measured["tflops_per_gpu"] * 1e12
    else:
        flops_per_s = measured["mfu_pct"] / 100 * accelerator(hardware["accelerator"]).peak("bf16")
    return float((flops or _flops(row)) / (flops_per_s * hardware["count"]))


def _flops(row: Mapping[str, Any]) -> float:
    """72 B s L h^2 (1 + s / 6h + V / 12 L h), and layers once more where all of them are computed again."""
    factor, head = (96, 16) if row.get("recompute") == "full" else (72, 12)
    shape, batch = row["model"], row["batch"]["global_"]
    h, s, layers, vocab = shape["hidden"], shape["seq"], shape["layers"], shape["vocab"]
    return float(factor * batch * s * layers * h * h * (1 + s / (6 * h) + vocab / (head * layers * h)))
