"""Published measurements as questions to the model: which job, on which system, took how long.

A suite reads its rows from a file of the form of shared data's `published_measurements.json` and turns each into a
`Row`. What a source leaves out is filled in by the rules written here, the same for all rows of a suite.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec

from simcore.cost.published import megatron
from simcore.cost.published.bigscience import bigscience
from simcore.cost.published.bridge import automodel, dense, mixtures
from simcore.cost.published.logged import memory, power
from simcore.cost.published.lumos import extrapolations
from simcore.cost.published.megatron import OF_2021, activations, gpt, layers, llama3
from simcore.cost.published.rows import Collective, Row, Step, job, measured_s, selected
from simcore.cost.published.tables import foundry, simumax, simumax_memory, table_rows
from simcore.cost.published.training import family, training
from simcore.cost.systems import SOFTWARE, fabric_of
from simcore.documents import read_json, read_text
from simcore.errors import InputError, Location, closest
from simcore.library import table
from simcore.workload.model import CollectiveKind

_Document = Mapping[str, Any]
_Rows = Callable[[_Document], Iterator[Row]]
SMALLEST_BYTES = 1 << 20  # below, collective benchmarks measure launches and noise


@dataclass(frozen=True, slots=True)
class Suite:
    """Rows that belong together; `tolerance` is the largest mean |error| allowed, None = reported only.

    `peer` is the best figure somebody published or we ran for the same rows (peers.md).
    """

    name: str
    rows: _Rows
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
    except (msgspec.MsgspecError, RecursionError):
        document = read_json(text.encode(), str(path), "measurements in JSON")  # says where it is not well-formed
    known = {"rows": list, "bulk_tables": dict, "collectives": list}
    if not isinstance(document, dict) or not any(isinstance(document.get(key), kind) for key, kind in known.items()):
        expected = "an object with rows, bulk_tables or collectives"
        raise InputError.at(Location(str(path), 1, 1), "holds no measurements", expected=expected)
    return document


def _steps(name: str, document: _Document) -> Iterator[Row]:
    """Rows of a suite of steps, each as its question."""
    for prefix, asks in _STEPS[name]:
        question: Callable[[_Document], Step] = getattr(megatron, asks)
        yield from (Row(row["id"], measured_s(row), question(row)) for row in selected(document, prefix))


def _family(name: str, document: _Document) -> Iterator[Row]:
    """Steps that vendors of frameworks or MLPerf publish, of one family; without a name any."""
    for row in document.get("rows", ()):
        if not name or (("benchmark" in row or "framework" in row) and family(row, FAMILIES) == name):
            question, measured = training(row), row.get("measured") or {}
            if "iter_s" not in measured:
                raise InputError.at(str(row.get("id")), "states no step time", expected="measured.iter_s")
            spread = float(measured.get("spread_pct") or 0) / 100
            yield Row(str(row["id"]), float(measured["iter_s"]), question, spread=spread)


def _vtrain_rows(name: str, document: _Document) -> Iterator[Row]:
    """Rows of a bulk table whose last column is the step in milliseconds."""
    for label, row in table_rows(document, name):
        yield Row(label, float([*row.values()][-1]) / 1e3, _vtrain(row))


def _vtrain(row: Mapping[str, Any]) -> Step:
    """Megatron-DeepSpeed with full recomputation, plain 1F1B, no gradient bucketing."""
    shape = {"layers": row["# layers"], "hidden": row["hidden size"], "heads": row["attention heads"]}
    model, batch = gpt({**shape, "seq": row["sequence length"]}), row["global batch"]
    degrees = {f"{kind[0]}p": row[f"{kind} parallelism"] for kind in ("tensor", "pipeline", "data")}
    choices: dict[str, Any] = {"micro_batch": row["micro batch"], "recompute": "full", "gradient_bytes": 2, **OF_2021}
    one = job(model, row["sequence length"], batch, **degrees, **choices)
    return Step((one,), "vtrain-node" if row["# GPUs"] <= 8 else "vtrain-cluster")


def _collectives(document: _Document, *, inside: bool) -> Iterator[Row]:
    """Tables that state ranks > 1 and nodes; time from the bus bandwidth where none is given."""
    for one in document.get("collectives", ()):
        stated = isinstance(one.get("ranks"), int) and one["ranks"] > 1 and "nodes" in one
        if stated and (one["nodes"] == 1) == inside:
            yield from _curve(one)


def _curve(measured: _Document) -> Iterator[Row]:
    known = [kind.value for kind in CollectiveKind]
    name, found = str(measured.get("id")), str(measured.get("collective"))
    if found not in known:
        raise InputError.at(name, "no such collective", expected=closest(found, known), found=found)
    kind, ranks, heads = CollectiveKind(found), measured["ranks"], measured["columns"]
    wire = (2 if kind is CollectiveKind.ALL_REDUCE else 1) * (ranks - 1) / ranks
    timed = [index for index, column in enumerate(heads) if column.startswith("time_us")]
    system = fabric_of(str(measured.get("hardware", "")))
    for point in measured["points"]:
        if point[0] >= SMALLEST_BYTES:
            rate = point[heads.index("busbw_GBps")] * 1e9 if not timed else 0.0
            seconds = point[timed[0]] / 1e6 if timed else point[0] * wire / rate
            yield Row(f"{name}-{point[0]}", seconds, Collective(kind, point[0], ranks, measured["nodes"], system))


_STEPS: dict[str, list[list[str]]] = defaultdict(list)
for _suite, *_asked in table(__file__, "steps.txt"):
    _STEPS[_suite].append(_asked)
# Suites -> their rows of a document; others are families.
_ROWS: dict[str, _Rows] = {
    **{name: partial(_steps, name) for name in _STEPS},
    "mlsys23_table4": layers,
    "vtrain_multi": partial(_vtrain_rows, "vtrain_multi"),
    "vtrain_single": partial(_vtrain_rows, "vtrain_single"),
    "lumos_replay": extrapolations,
    "llama3_405b": llama3,
    "megatron_bridge_llama": dense,
    "megatron_bridge_moe": mixtures,
    "automodel_h100": automodel,
    "simumax_b200": simumax,
    "llm_foundry_mpt": foundry,
    "bigscience": bigscience,
    "activations": activations,
    "memory": simumax_memory,
    "collectives_in_node": partial(_collectives, inside=True),
    "collectives_across_nodes": partial(_collectives, inside=False),
    "mlperf_memory": partial(memory, "max_memory_gb"),
    # What PyTorch's allocator keeps was learnt of BigScience's jobs.
    "torchtitan_memory": partial(memory, "max_reserved_gib", reserved_bytes=SOFTWARE["deepspeed"].reserved_bytes),
    "mlperf_power": power,
}
_TABLE = table(__file__, "suites.txt", 4)
FAMILIES = [name for name, *_ in _TABLE if name not in _ROWS]
SUITES = {
    name: Suite(name, _ROWS.get(name) or partial(_family, name), None if most == "-" else float(most), peer, unit)
    for name, most, unit, peer in _TABLE
}
OTHER = Suite("other", partial(_family, ""), None, "none")  # rows that no other suite reads


def suite(name: str) -> Suite:
    """The suite called `name`; InputError names the nearest."""
    if name not in SUITES:
        raise InputError.at(name, "no such suite of measurements", expected=closest(name, SUITES), found=repr(name))
    return SUITES[name]
