"""A predicted step as the native engine runs it: the pipeline's rows with the times of `predict`, NCCL's collectives.

What `predict` adds up and plays as a pure function, here every stage plays as a process, row by row, with the
collectives that its kernels wait for. Waiting for messages between stages is in a row's time where stages wait for
them; they are messages of the engine where they overlap; the sum of gradients over the data-parallel ranks is a
collective of the engine where nothing hides it. Both answers agree to the rounding of messages to whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import fsum
from pathlib import Path
from typing import Any

from simcore.cost.predict import message_bytes, messages_ns, part_cells, predict, shown_s, shown_sums
from simcore.cost.step import Cell, cut_of, seats
from simcore.cost.systems import Cluster
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import Location
from simcore.generate.traces import write_set
from simcore.model.plan import Plan
from simcore.model.shape import Model
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.system.collectives import NCCL, Algorithm
from simcore.system.collectives.nccl import Fabric
from simcore.system.config import SystemConfig
from simcore.timeline.events import Timeline
from simcore.units import whole_ns
from simcore.workload.model import CollectiveKind, Layer, Phase, Role, Workload


def engine_ns(model: Model, plan: Plan, cluster: Cluster) -> int:
    """How long a step takes of `model` on `cluster`, run by the engine; errors are those of `predict`."""
    return run_ns(program(model, plan, cluster), plan, cluster.fabric)


def network_ns(model: Model, plan: Plan, cluster: Cluster) -> int | None:
    """How long the same step takes on the links of the cluster's topology, where it has one of this size."""
    if cluster.topology is None or cluster.topology.npus != plan.world_size:
        return None
    return native(program(model, plan, cluster), cluster.topology, SystemConfig()).time_ns


def run_ns(workload: Workload, plan: Plan, fabric: Fabric) -> int:
    """How long a workload takes on the ranks of a plan, with NCCL's collectives on `fabric`."""
    # Tensor ranks, replicas, stages; NCCL's times count, not the links.
    sizes = [size for size in (plan.tp, plan.replicas, plan.pp) if size > 1] or [1]
    machine = Topology(tuple(Dimension("Switch", size, 1e9, 0.0) for size in sizes))
    return native(workload, machine, nccl(fabric)).time_ns


def nccl(fabric: Fabric) -> SystemConfig:
    """All collectives as NCCL was measured to do them."""
    algorithms = dict.fromkeys(CollectiveKind, (Algorithm(NCCL),))
    return SystemConfig(implementations=algorithms, fabric=fabric, preferred_dataset_splits=1)


def native(workload: Workload, machine: Topology, system: SystemConfig | None = None) -> Timeline:
    """A workload played as `simcore run` does by itself."""
    return simulate(workload, machine, system, profiles.get("native"), Settings())


def cells(plan: Plan) -> int:
    """How many cells of the schedule the engine runs, forward and backward as one, over all stages."""
    return plan.micro_batches * plan.outline.parts


def program(model: Model, plan: Plan, cluster: Cluster) -> Workload:
    """The step as a text workload: every part of the model with its micro-batches, what ends the step ahead of them."""
    count, ends = plan.micro_batches, _ends(model, plan, cluster)
    blocked_ns = 0 if plan.overlap_pipeline else max(messages_ns(model, plan, cluster))
    seen = enumerate(seats(plan, cluster))
    rows = [_rows(part_cells(model, cut_of(plan), there, part), blocked_ns) for part, there in seen]
    sizes = replace(plan.sizes(model), ep=plan.ep)
    told: dict[str, Any] = {"parallelism": sizes, "dialect": "simai", "location": Location("the step as rows")}
    if plan.pp == 1:
        return Workload("HYBRID_TRANSFORMER", (*ends, *chain.from_iterable(rows * count)), **told)
    # A stage has one end: with its first chunk, or in its one part of the first half where two pipelines meet.
    ending = plan.pp // 2 if plan.copies > 1 else plan.pp
    parts = [(ends if part < ending else ()) + row * count for part, row in enumerate(rows)]
    layers, lengths = tuple(chain.from_iterable(parts)), tuple(map(len, parts))
    handed = message_bytes(model, plan) if plan.overlap_pipeline else 0
    made = Workload("HYBRID_TRANSFORMER", layers, schedule=plan.schedule, **told)
    return replace(made, pipeline_bytes=handed, stage_rows=lengths)


def write_step(model: Model, plan: Plan, cluster: Cluster, prefix: Path, *, force: bool) -> list[Path]:
    """Write the step as execution traces PREFIX.RANK.et of all ranks, and PREFIX.groups.json; the paths."""
    workload = program(model, plan, cluster)
    plan = plan.but(zero=0, shard=0)  # what is gathered and reduced in every pass is in the times of its rows
    return write_set(workload, plan, prefix, force=force)


def _rows(some: Sequence[tuple[Cell, int]], waits_ns: int) -> tuple[Layer, ...]:
    """One micro-batch of a part of the model; waiting for transfers stands in its first row."""
    first, *others = (row for cell, count in some for row in cell.rows * count)
    ahead, back = (
        replace(phase, compute_ns=phase.compute_ns + waits_ns) for phase in (first.forward, first.input_grad)
    )
    return (replace(first, forward=ahead, input_grad=back), *others)


def _ends(model: Model, plan: Plan, cluster: Cluster) -> tuple[Layer, ...]:
    """The sums over the replicas, where nothing hides them; all else behind the pipeline as computation."""
    parts = predict(model, plan, cluster).parts
    after_s = fsum(parts[name] for name in ("gradients", "optimizer", "stragglers", "other", "losses"))
    after_s -= shown_s(model, plan, cluster)
    last = Layer("optimizer", Phase(whole_ns(1e9 * after_s)), role=Role.OPTIMIZER)
    shown = shown_sums(model, plan, cluster.software)
    return (*(one.row for one in reversed(shown)), last)  # the upward pass comes to the last row first
