"""The JSON document of a report, schema `simcore.report/1`, as types; written and read with the same types.

Every view but the timelines is made from this document, so a saved `report.json` shows what the run showed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NotRequired, TypedDict

SCHEMA = "simcore.report/1"


class IterationRow(TypedDict):
    """When a training iteration began and ended."""

    index: int
    start_ns: int
    end_ns: int


class BreakdownRow(TypedDict):
    """Four disjoint shares of rank 0's time; they add up to `time_ns`."""

    compute_ns: int
    overlapped_ns: int
    exposed_comm_ns: int
    idle_ns: int


class PhaseRow(TypedDict):
    """One phase of a layer: sums over iterations, and the collective behind it."""

    compute_ns: int
    comm_ns: int
    exposed_ns: int
    collective: str | None
    bytes: int


class LayerRow(TypedDict):
    """A row of the workload."""

    index: int
    name: str
    forward: PhaseRow
    input_grad: PhaseRow
    weight_grad: PhaseRow


def phase_row(asked: tuple[str | None, int], compute_ns: int, comm_ns: int, exposed_ns: int) -> PhaseRow:
    """A phase that asked for a collective of so many bytes, or for None."""
    kind, size_bytes = str(asked[0]) if asked[0] else None, int(asked[1])
    return PhaseRow(compute_ns=compute_ns, comm_ns=comm_ns, exposed_ns=exposed_ns, collective=kind, bytes=size_bytes)


def layer_row(index: int, name: str, *phases: PhaseRow) -> LayerRow:
    """A layer with its phases, in the order of `PhaseName`."""
    forward, input_grad, weight_grad = phases
    return LayerRow(index=index, name=name, forward=forward, input_grad=input_grad, weight_grad=weight_grad)


class RankRow(TypedDict):
    """NPUs with equal figures."""

    ranks: str
    finish_ns: int
    compute_ns: int
    comm_ns: int
    exposed_comm_ns: int
    idle_ns: int


class StageRow(BreakdownRow):
    """How the first NPU of a pipeline stage spends the run's time; the four shares add up to it, idle is the bubble."""

    stage: int
    ranks: str
    finish_ns: int


class Pipeline(TypedDict):
    """The schedule of a pipelined run and its stages."""

    schedule: str
    micro_batches: int
    chunks: int
    stages: list[StageRow]


class DimensionRow(TypedDict):
    """Traffic of one NPU in a dimension of the topology; what its links carry together, where the run tells."""

    index: int
    kind: str
    npus: int
    bytes_per_npu: int
    busy_ns: int
    rated_bytes_per_s: NotRequired[float]


class LinkRow(TypedDict):
    """What a link carried."""

    src: str
    dst: str
    bytes: int
    busy_ns: int


class Links(TypedDict):
    """The links of the network and the busiest of them; `count` 0 where links are not modelled."""

    count: int
    hottest: list[LinkRow]


class QueueRow(TypedDict):
    """The queue in front of a link: the most that waited, how long and how often the link stood still for want of room.

    Curves say the same of equal parts of the run: the most that waited, how long it stood still, what was marked and
    dropped.
    """

    src: str
    dst: str
    peak_bytes: int
    still_ns: int
    stops: int
    marks: int
    drops: int
    dropped_bytes: int
    curve_bytes: list[int]
    curve_still_ns: list[int]
    curve_marks: list[int]
    curve_drops: list[int]


class Queues(TypedDict):
    """Sums over all links (segments that were marked; dropped, and sent again) and the queues that matter most."""

    still_ns: int
    stops: int
    marks: int
    drops: int
    dropped_bytes: int
    deepest: list[QueueRow]


class CircuitsRow(TypedDict):
    """The configurations of an optical switch, how often it changed them, and how long that took in all."""

    configurations: list[str]
    changes: int
    changing_ns: int


class FaultRow(TypedDict):
    """A fault as it was asked for; transfers (and their bytes) that it slowed down, transfers led around; -1 = open."""

    fault: str
    begin_ns: int
    end_ns: int
    transfers: int
    bytes: int
    rerouted: int


class SpreadRow(TypedDict):
    """Of the run's time over all seeds: the mean, and the 5th and 95th percentile (linear between runs)."""

    mean: int
    p5: int
    p95: int


class NoiseRow(TypedDict):
    """Seeded noise; `times_ns` are the times of the seeds `seed`, `seed` + 1, ..; the report is the first one's."""

    seed: int
    jitter: list[str]
    runs: int
    time_ns: SpreadRow
    times_ns: list[int]


Option = bool | int | float | str | list[str]
"""What an option of a run was given."""


class HelpRow(TypedDict):
    """The run with one thing changed for the better; `saved_ns` is negative where the change makes it slower."""

    change: str
    time_ns: int
    saved_ns: int


class RuleRow(TypedDict):
    """The run with one rule of its profile as native has it; `added_ns` is what the rule adds to the profile's time.

    Where such a run is refused, `refused` says why, and there are no times.
    """

    rule: str
    time_ns: int | None
    added_ns: int | None
    refused: str


class InputRow(TypedDict):
    """A file the run read."""

    role: str
    path: str
    sha256: str


class MostRow(TypedDict):
    """A figure over all NPUs, and the NPU with the most."""

    max: int
    mean: float
    npu: int


class StragglerRow(TypedDict):
    """An NPU that others waited for: in how many phases, and how much longer than the mean it computed in them."""

    npu: int
    phases: int
    cost_ns: int


class StepRow(TypedDict):
    """A step of a wafer; `tokens` 0 where they are not known (traces of cores)."""

    name: str
    time_ns: int
    tokens: int
    tokens_per_s: float
    compute_ns: MostRow
    stragglers: NotRequired[list[StragglerRow]]
    move_ns: NotRequired[dict[str, float]]


class WaferRow(TypedDict):
    """The steps of a wafer."""

    steps: list[StepRow]


class PowerRow(TypedDict):
    """What boards of an accelerator draw: the mean of one, joules of all, and of all in bins between `edges_ns`."""

    accelerator: str
    board_w: float
    energy_j: float
    edges_ns: list[int]
    watts: list[float]


class ReportDocument(TypedDict):
    """The whole document; docs/report.md defines every figure."""

    schema: str
    version: str
    profile: str
    network: str
    time_ns: int
    iterations: list[IterationRow]
    npus: int
    classes: int
    compute_ns: int
    exposed_comm_ns: int
    breakdown: BreakdownRow
    layers: list[LayerRow]
    ranks: list[RankRow]
    dims: list[DimensionRow]
    links: Links
    warnings: list[str]
    inputs: list[InputRow]
    jobs: NotRequired[list[str]]
    pipeline: NotRequired[Pipeline]
    simai: NotRequired[dict[str, float]]
    wafer: NotRequired[WaferRow]
    noise: NotRequired[NoiseRow]
    faults: NotRequired[list[FaultRow]]
    power: NotRequired[PowerRow]
    queues: NotRequired[Queues]
    circuits: NotRequired[CircuitsRow]
    what_would_help: NotRequired[list[HelpRow]]
    profile_rules: NotRequired[list[RuleRow]]
    options: NotRequired[dict[str, Option]]


def encode(document: Mapping[str, object]) -> str:
    """JSON as all our files hold it: keys sorted, indented by one, NaN refused, a line break at the end.

    What is no UTF-8, as bytes of a path may be, is a question mark.
    """
    import msgspec

    plain = json.dumps(document, sort_keys=True, allow_nan=False, ensure_ascii=False).encode(errors="replace")
    return msgspec.json.format(plain, indent=1).decode() + "\n"  # ten times as fast as json's own indent
