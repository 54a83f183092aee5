"""Published measurements as questions to the model: which job, on which system, took how long.

A suite reads its rows from a file of the form of shared data's `published_measurements.json` and turns each into a
`Row`. What a source leaves out is filled in by the rules written here, the same for all rows of a suite.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from simcore.cost.published.bigscience import bigscience
from simcore.cost.published.bridge import automodel, dense, mixtures
from simcore.cost.published.logged import memory, power
from simcore.cost.published.lumos import extrapolations
from simcore.cost.published.megatron import (
    CLASSIC,
    ablations,
    activations,
    gpt,
    layers,
    llama3,
    lumos,
    megascale,
    megatron_core,
    mlsys23,
    sc21,
    unfitted,
    zero3,
)
from simcore.cost.published.rows import Collective, Row, Step, job, selected, step_s
from simcore.cost.published.tables import foundry, simumax, simumax_memory, table_rows
from simcore.cost.published.training import family, training
from simcore.cost.systems import fabric_of
from simcore.documents import read_text
from simcore.errors import InputError, Location, closest
from simcore.workload.model import CollectiveKind

SMALLEST_BYTES = 1 << 20  # below, collective benchmarks measure launches and noise


@dataclass(frozen=True, slots=True)
class Suite:
    """Rows that belong together; `tolerance` is the largest mean |error| allowed, None = reported only.

    `peer` is the best figure somebody published or we ran for the same rows (peers.md).
    """

    name: str
    rows: Callable[[Mapping[str, Any]], Iterator[Row]]
    tolerance: float | None
    peer: str
    unit: str = "s"

    @property
    def left_out(self) -> Mapping[str, float] | None:
        """Mean and p90 |error| with each row's source left out of the fit; None where nothing was fitted on them."""
        return _left_out().get(self.name)

    @property
    def in_sample(self) -> bool:
        """Whether parameters were fitted on these rows; of collectives a rate and a latency of each system are."""
        return self.left_out is not None or self.name.startswith("collectives")


LEFT_OUT = Path(__file__).parent / "left_out.json"


@lru_cache(maxsize=1)
def _left_out() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(LEFT_OUT.read_text(encoding="utf-8"))
    return found


def load(path: str | Path) -> Mapping[str, Any]:
    """The measurements of a file; InputError when it is not JSON or not of this form."""
    text = read_text(path)
    try:
        document = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError.at(str(path), f"not well-formed: {error}", expected="JSON") from error
    known = {"rows": list, "bulk_tables": dict, "collectives": list}
    if not isinstance(document, dict) or not any(isinstance(document.get(key), kind) for key, kind in known.items()):
        expected = "an object with rows, bulk_tables or collectives"
        raise InputError.at(Location(str(path), 1, 1), "holds no measurements", expected=expected)
    return document


def _steps(prefix: str, key: str, question: Callable[[Mapping[str, Any]], Step]) -> Callable[..., Iterator[Row]]:
    """Rows whose id starts with `prefix`; those of the source give `key` in seconds."""

    def rows(document: Mapping[str, Any]) -> Iterator[Row]:
        for row in selected(document, prefix):
            measured_s = step_s(row, lambda measured: float(measured[key]))
            yield Row(row["id"], measured_s, question(row))

    return rows


def _family(name: str) -> Callable[..., Iterator[Row]]:
    """Steps that vendors of frameworks or MLPerf publish, of one family; without a name any."""

    def rows(document: Mapping[str, Any]) -> Iterator[Row]:
        for row in document.get("rows", ()):
            if not name or (("benchmark" in row or "framework" in row) and family(row, FAMILIES) == name):
                question, measured = training(row), row.get("measured") or {}
                if "iter_s" not in measured:
                    raise InputError.at(str(row.get("id")), "states no step time", expected="measured.iter_s")
                spread = float(measured.get("spread_pct") or 0) / 100
                yield Row(str(row["id"]), float(measured["iter_s"]), question, spread=spread)

    return rows


def _table(name: str, question: Callable[[Mapping[str, Any]], Step]) -> Callable[..., Iterator[Row]]:
    """Rows of a bulk table whose last column is the step in milliseconds."""

    def rows(document: Mapping[str, Any]) -> Iterator[Row]:
        for label, row in table_rows(document, name):
            yield Row(label, float([*row.values()][-1]) / 1e3, question(row))

    return rows


def _vtrain(row: Mapping[str, Any]) -> Step:
    """Megatron-DeepSpeed with full recomputation, plain 1F1B, no gradient bucketing."""
    shape = {"layers": row["# layers"], "hidden": row["hidden size"], "heads": row["attention heads"]}
    one = job(
        gpt({**shape, "seq": row["sequence length"]}),
        row["sequence length"],
        row["global batch"],
        micro_batch=row["micro batch"],
        tp=row["tensor parallelism"],
        pp=row["pipeline parallelism"],
        dp=row["data parallelism"],
        recompute="full",
        scatter_pipeline=True,
        gradient_bytes=2,
        dtype="fp16",
        **CLASSIC,
    )
    return Step((one,), "vtrain-node" if row["# GPUs"] <= 8 else "vtrain-cluster")


def _collectives(*, inside: bool) -> Callable[..., Iterator[Row]]:
    """Tables that state ranks > 1 and nodes; time from the bus bandwidth where none is given."""

    def rows(document: Mapping[str, Any]) -> Iterator[Row]:
        for table in document.get("collectives", ()):
            stated = isinstance(table.get("ranks"), int) and table["ranks"] > 1 and "nodes" in table
            if stated and (table["nodes"] == 1) == inside:
                yield from _curve(table)

    return rows


def _curve(table: Mapping[str, Any]) -> Iterator[Row]:
    known = [kind.value for kind in CollectiveKind]
    if table.get("collective") not in known:
        found = str(table.get("collective"))
        raise InputError.at(str(table.get("id")), "no such collective", expected=closest(found, known), found=found)
    kind, ranks = CollectiveKind(table["collective"]), table["ranks"]
    wire = (2 if kind is CollectiveKind.ALL_REDUCE else 1) * (ranks - 1) / ranks
    timed = [index for index, column in enumerate(table["columns"]) if column.startswith("time_us")]
    system = fabric_of(str(table.get("hardware", "")))
    for point in table["points"]:
        if point[0] < SMALLEST_BYTES:
            continue
        rate = point[table["columns"].index("busbw_GBps")] * 1e9 if not timed else 0.0
        seconds = point[timed[0]] / 1e6 if timed else point[0] * wire / rate
        question = Collective(kind, point[0], ranks, table["nodes"], system)
        yield Row(f"{table['id']}-{point[0]}", seconds, question)


# Families of published steps -> the largest mean |error| allowed, and the best figure of a peer.
FAMILIES: dict[str, tuple[float | None, str]] = {
    "frameworks_megatron": (0.053, "calculon 21.1% (49 rows)"),
    "frameworks_fsdp": (0.067, "none"),
    "frameworks_xla": (0.08, "none"),
    "frameworks_internevo": (0.036, "calculon 54.6%"),
    "frameworks_other": (None, "none"),
    "mlperf_gpt3": (0.045, "none"),
    "mlperf_llama31_405b": (0.015, "none"),
    "mlperf_llama31_8b": (0.035, "none"),
    "mlperf_llama2_70b_lora": (0.058, "none"),
    "mlperf_other": (None, "none"),
}
OTHER = Suite("other", _family(""), None, "none")  # rows that no other suite reads

SUITES = {
    suite.name: suite
    for suite in (
        Suite("mlsys23_table5", _steps("mlsys23-t5-", "iter_s", mlsys23), 0.025, "calculon 3.65% (8 rows)"),
        Suite("mlsys23_table4", layers, None, "none"),
        Suite("sc21_table1", _steps("sc21-t1-", "iter_s_implied", sc21), 0.035, "calculon 8.7% (10 rows)"),
        Suite("megascale_table2", _steps("megascale-t2-", "iter_s", megascale), 0.05, "calculon 7.5% (8 rows)"),
        Suite("vtrain_multi", _table("vtrain_multi", _vtrain), 0.095, "vTrain 14.7% with a GPU's profile"),
        Suite(
            "vtrain_single", _table("vtrain_single", _vtrain), 0.08, "calculon 35.2%; vTrain 8.4% with a GPU's profile"
        ),
        Suite("megatron_unfitted", unfitted, 0.09, "none"),
        Suite("sc21_zero3", zero3, None, "none"),
        Suite("megascale_table3", ablations, 0.055, "none"),
        Suite("lumos_figure7", lumos, 0.11, "Lumos 4.2%, from traces of the same cluster"),
        Suite("lumos_replay", extrapolations, 0.12, "Lumos 3.8%, from its own trace"),
        Suite("megatron_core_h100", megatron_core, 0.07, "calculon 27-58% (5 of 9 rows; 4 out of memory)"),
        Suite("llama3_405b", llama3, 0.025, "none"),
        Suite("megatron_bridge_llama", dense, 0.05, "none"),
        Suite("megatron_bridge_moe", mixtures, 0.092, "none"),
        Suite("automodel_h100", automodel, 0.08, "none"),
        Suite("simumax_b200", simumax, 0.08, "SimuMax 5.6%"),
        Suite("llm_foundry_mpt", foundry, 0.05, "none"),
        Suite("bigscience", bigscience, 0.053, "none"),
        Suite("activations", activations, 0.05, "calculon 2%", "bytes"),
        Suite("memory", simumax_memory, 0.03, "SimuMax 0.46%", "bytes"),
        Suite("collectives_in_node", _collectives(inside=True), 0.06, "Echo 7-8%; ASTRA-sim 9.7% (8 H100)"),
        Suite("collectives_across_nodes", _collectives(inside=False), 0.06, "Echo 11-14% (2-8 nodes)"),
        Suite("mlperf_memory", memory, 0.07, "none", "bytes"),
        Suite("mlperf_power", power, 0.15, "none", "w"),
        *(Suite(name, _family(name), tolerance, peer) for name, (tolerance, peer) in FAMILIES.items()),
    )
}


def suite(name: str) -> Suite:
    """The suite called `name`; InputError names the nearest."""
    if name not in SUITES:
        raise InputError.at(name, "no such suite of measurements", expected=closest(name, SUITES), found=repr(name))
    return SUITES[name]
