"""A predicted step as the native engine runs it: the pipeline's rows with the times of `predict`, NCCL's collectives.

What `predict` adds up and plays as a pure function, here every stage plays as a process. A row is a part of the model
and a micro-batch, with the waits of its layers inside. Messages between stages are inside, too, where stages wait for
them, and messages of the engine where they overlap; the sum of gradients over the data-parallel ranks is a collective
of the engine where nothing hides it. Both answers agree to the rounding of rows and messages to whole nanoseconds.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import fsum

from simcore.cost.job import Cluster, Job
from simcore.cost.predict import gradient_sums, message_bytes, part_times, predict
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.system.collectives.nccl import Fabric
from simcore.system.config import NCCL, Algorithm, SystemConfig
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, Workload

__all__ = ["cells", "engine_ns", "program", "run_ns"]


def engine_ns(job: Job, cluster: Cluster) -> int:
    """How long a step takes of `job` on `cluster`, run by the engine; errors are those of `predict`."""
    fabric = cluster.fabric if job.overlap_pipeline else replace(cluster.fabric, hop_s=0.0)
    return run_ns(program(job, cluster), job, fabric)


def run_ns(workload: Workload, job: Job, fabric: Fabric) -> int:
    """How long a workload takes on the ranks of a job, with NCCL's collectives on `fabric`."""
    algorithms = dict.fromkeys(CollectiveKind, (Algorithm(NCCL),))
    system = SystemConfig(implementations=algorithms, fabric=fabric, preferred_dataset_splits=1)
    settings = Settings(schedule=job.schedule_name if job.pp > 1 else "")
    return simulate(workload, _machine(job), system, profiles.get("native"), settings).time_ns


def cells(job: Job) -> int:
    """How many rows the engine runs, over all stages."""
    return job.micro_batches * job.outline.parts


def program(job: Job, cluster: Cluster) -> Workload:
    """The step as a text workload: every part of the model with its micro-batches, what ends the step ahead of them."""
    times, count = part_times(job, cluster), job.micro_batches
    weights = times.weight or [0.0] * len(times.forward)
    rows = [(_row(*each),) for each in zip(times.forward, times.backward, weights, strict=True)]
    ends = (_end(job, cluster),)
    if job.pp == 1:
        sizes = Parallelism(job.tp)
        return Workload("HYBRID_TRANSFORMER", (*ends, *chain.from_iterable(rows * count)), sizes, "simai")
    # A stage has one end: with its first chunk, or in its one part of the first half where two pipelines meet.
    ending = job.pp // 2 if job.outline.placement == "twoway" else job.pp
    parts = [(ends if part < ending else ()) + row * count for part, row in enumerate(rows)]
    sizes = Parallelism(job.tp, pp=job.pp, vpp=job.outline.chunks, gradient_accumulation=count)
    layers, lengths = tuple(chain.from_iterable(parts)), tuple(map(len, parts))
    handed = round(message_bytes(job)) if job.overlap_pipeline else 0
    return Workload("HYBRID_TRANSFORMER", layers, sizes, "simai", pipeline_bytes=handed, stage_rows=lengths)


def _row(forward_s: float, backward_s: float, weight_s: float) -> Layer:
    """One micro-batch of a part."""
    return Layer("part", Phase(_whole_ns(forward_s)), Phase(_whole_ns(backward_s)), Phase(_whole_ns(weight_s)))


def _end(job: Job, cluster: Cluster) -> Layer:
    """The sum of gradients over the replicas, where nothing hides it; all else behind the pipeline as computation."""
    parts = predict(job, cluster).parts
    after_s = parts["gradients"] + parts["optimizer"] + parts["other"]
    sums = [] if job.overlap_gradients or job.replicas == 1 else gradient_sums(job)
    shown = [one for one in sums if one.stride == job.tp and one.ranks == job.replicas][: len(sums) // 2]
    after_s -= fsum(one.seconds(job, cluster) for one in shown)
    phases = {one.kind == CollectiveKind.ALL_GATHER: (one.kind, round(one.size_bytes), Group.DP) for one in shown}
    summed = Phase(0, *phases[False]) if False in phases else Phase()
    return Layer("gradient_reduce", Phase(_whole_ns(after_s), *phases.get(True, ())), weight_grad=summed)


def _machine(job: Job) -> Topology:
    """Tensor ranks, replicas, stages; NCCL's times count, not the links."""
    sizes = [size for size in (job.tp, job.replicas, job.pp) if size > 1] or [1]
    return Topology(tuple(Dimension("Switch", size, 1e9, 0.0) for size in sizes))


def _whole_ns(seconds: float) -> int:
    return round(seconds * 1e9)
