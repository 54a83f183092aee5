"""Lumos's extrapolations (Liang et al., MLSys 2025, arXiv 2504.09307, figure 7), done with our own base trace.

Lumos recorded GPT-3 15B on 2 x 2 x 4 H100 (TP x PP x DP) and predicted other data and pipeline degrees from that trace.
Its trace is not public: ours is generated, run, written as profiler traces, read back and compiled for the other
degrees (`simcore.replay.pipelines.pipeline`), all links and collectives being those of a measured H100 system. Of a row
only its degrees go into its prediction.

The batch is not published either. The bars tell that a rank computes as long in every row (476 ms at PP 2, 446 to
462 ms at PP 4 and 8), about what four sequences of 2,048 tokens take on 24 layers: the sequences grow with PP. At
2 x 2 x 8 a rank stands still or only communicates for 321 ms, two thirds of that: much more than the bubble of four
micro-batches (1 / 4) leaves, and what that of two (1 / 2) does. Hence, for all rows: PP micro-batches of two sequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import fsum
from typing import Any

from simcore.compute.accelerators import accelerator
from simcore.cost.played import native, nccl
from simcore.cost.predict import Prediction
from simcore.cost.published.rows import Question, Row, measured_s, selected
from simcore.cost.systems import CLUSTERS
from simcore.generate.durations import roofline
from simcore.model.plan import Plan
from simcore.model.rows import pipeline_workload
from simcore.model.shape import Model
from simcore.network.topology.model import Dimension, Topology
from simcore.replay.pipelines.pipeline import compiled, played, target_of
from simcore.replay.pipelines.stages import Recorded
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.whatif.transfers import Interconnect
from simcore.report.model import Report
from simcore.report.timelines.kineto import kineto_traces
from simcore.timeline.breakdown import breakdown
from simcore.workload.kineto_reader import read_kineto

CLUSTER, NODE, BASE = "h100-production", 8, (2, 2, 4)
SEQUENCE, VOCABULARY, PER_MICRO_BATCH = 2048, 51200, 2  # MLPerf's GPT-3; the last is derived above
NVLINK, ROCE = Dimension("Switch", NODE, 450e9, 500.0), 50e9  # one 400 Gb/s card a GPU

Shape = tuple[int, int, int, int]  # layers, hidden, ffn, heads


@dataclass(frozen=True, slots=True)
class Extrapolation(Question):
    """The step at other data and pipeline degrees, predicted from the base trace of a model's shape."""

    shape: Shape
    pp: int
    dp: int

    def explained(self) -> Prediction:
        """The time of the first stage by what it did, and what the cluster's software adds once a step."""
        parts = dict(_shares(self.shape, self.pp, self.dp)) | {"other": CLUSTERS[CLUSTER].software.step_s}
        parts["losses"] = CLUSTERS[CLUSTER].losses * fsum(parts.values())
        return Prediction(fsum(parts.values()), parts)


@lru_cache
def _shares(shape: Shape, pp: int, dp: int) -> tuple[tuple[str, float], ...]:
    base = _base(shape)
    plan = target_of(base, {"pp": pp, "dp": dp, "micro_batches": pp})
    report = played(compiled(base, plan), plan, Interconnect(_machine(plan.npus), nccl(CLUSTERS[CLUSTER].fabric)))
    stage = breakdown(report.timeline)
    names = {"compute_ns": "compute", "overlapped_ns": "overlapped", "exposed_comm_ns": "exposed"}
    shares = {title: getattr(stage, key) / 1e9 for key, title in names.items()}
    return tuple((shares | {"bubble": report.timeline.time_ns / 1e9 - fsum(shares.values())}).items())


@lru_cache
def _base(shape: Shape) -> Recorded:
    """The base trace: generated, run, written, read and taken apart."""
    tp, pp, dp = BASE
    layers, hidden, ffn, heads = shape
    model = Model(
        "gpt", layers, hidden, heads, ffn, VOCABULARY, gated=False, tied=True, positions=SEQUENCE, norm="layer"
    )
    plan = Plan(
        tp * pp * dp, SEQUENCE, tp, pp=pp, micro_batch=PER_MICRO_BATCH, global_batch=PER_MICRO_BATCH * pp * dp,
        sequence_parallel=True, zero=1, overlap=True,
    )  # fmt: skip
    where = CLUSTERS[CLUSTER]
    workload = pipeline_workload(
        model, plan, roofline(model, plan, accelerator(where.accelerator), where.software.kernels)
    )
    timeline = native(workload, _machine(plan.world_size), nccl(where.fabric))
    traces = kineto_traces(Report(timeline, "native", "", workload=workload)).values()
    return Recorded(replay_traces([read_kineto(content, f"rank{rank}.json") for rank, content in traces], Changes()))


def _machine(npus: int) -> Topology:
    return Topology((NVLINK, Dimension("Switch", npus // NODE, ROCE, 2000.0)))


def extrapolations(document: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of figure 7 with Lumos's own prediction of each."""
    for row in selected(document, "lumos-f7-"):
        model, degrees = row["model"], row["parallel"]
        shape = model["layers"], model["hidden"], model["ffn"], model["heads"]
        question = Extrapolation(shape, degrees["pp"], degrees["dp"])
        peer_s = row.get("peer_prediction", {}).get("iter_ms", 0.0) / 1e3
        yield Row(f"{row['id']}-replay", measured_s(row), question, peer_s)
