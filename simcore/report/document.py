"""The JSON document of a report, schema `simcore.report/1`, as types; written and read with the same types.

Every view but the timelines is made from this document, so a saved `report.json` shows what the run showed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NotRequired, TypedDict

__all__ = [
    "SCHEMA",
    "BreakdownRow",
    "DimensionRow",
    "InputRow",
    "IterationRow",
    "LayerRow",
    "LinkRow",
    "Links",
    "PhaseRow",
    "RankRow",
    "ReportDocument",
    "encode",
]

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


class RankRow(TypedDict):
    """NPUs with equal figures."""

    ranks: str
    finish_ns: int
    compute_ns: int
    comm_ns: int
    exposed_comm_ns: int
    idle_ns: int


class DimensionRow(TypedDict):
    """Traffic of one NPU in a dimension of the topology."""

    index: int
    kind: str
    npus: int
    bytes_per_npu: int
    busy_ns: int


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


class InputRow(TypedDict):
    """A file the run read."""

    role: str
    path: str
    sha256: str


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
    simai: NotRequired[dict[str, float]]


def encode(document: Mapping[str, object]) -> str:
    """JSON as all our files hold it: keys sorted, indented by one, NaN refused, a line break at the end."""
    return json.dumps(document, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
