"""Published measurements in tables of their own: SimuMax on B200, llm-foundry's MPT.

What a table leaves out and its source says elsewhere (shapes of models) is stated here once, for all rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from simcore.cost.published.megatron import gpt
from simcore.cost.published.rows import Held, Job, Row, Step, job, named
from simcore.cost.systems import placed
from simcore.errors import InputError
from simcore.model.presets import SHIPPED


def table_rows(document: Mapping[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, row by column) of a bulk table."""
    table = document.get("bulk_tables", {}).get(name, {"columns": [], "rows": []})
    for number, values in enumerate(table["rows"], table.get("first", 0)):
        yield f"{name}-{number}", dict(zip(table["columns"], values, strict=False))


def spread(row: Mapping[str, Any], ranks: int) -> dict[str, int]:
    """Degrees of a NeMo table's row, for so many ranks; "n/a" and an empty cell are 1."""
    tp, pp, cp, ep, vp = (number(row[key]) for key in ("TP", "PP", "CP", "EP", "VP"))
    degrees = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "dp": ranks // (tp * pp * cp), "micro_batch": int(row["MBS"])}
    return {**degrees, "virtual_stages": vp if pp > 1 else 1}


def number(cell: object) -> int:
    """A degree; 1 where there is none."""
    return int(str(cell)) if str(cell).isdigit() else 1


_SIMUMAX = {name: (SHIPPED[preset], int(dense)) for name, ((preset, dense),) in named("simumax").items()}
_FIELD = re.compile(r"(tp|pp|dp|cp|ep|mbc|seq|l)(\d+)")


def _simumax_job(case: str) -> Job:
    """Megatron-LM, nothing overlapped (SimuMax's reproduction guide).

    Not stated, and inferred from the measured memory: one sequence a micro-batch, ZeRO 1.
    """
    name = next((name for name in _SIMUMAX if case.startswith(f"{name}_")), "")
    if not name:
        raise InputError.at(case, "no such model", expected=", ".join(_SIMUMAX), found=case)
    found = {key: int(value) for key, value in _FIELD.findall(case.removeprefix(name))}
    known, dense = _SIMUMAX[name]
    model = replace(known, layers=found["l"])
    if model.experts:
        model = replace(model, experts=replace(model.experts, dense_layers=dense))
    degrees = {name: found.get(name, 1) for name in ("tp", "pp", "dp", "cp", "ep")}
    choices: dict[str, Any] = {"sequence_parallel": degrees["tp"] > 1, "zero": 1, "context": "all_to_all"}
    return job(model, found.get("seq", 4096), found["mbc"] * degrees["dp"], **degrees, **choices)


def simumax(document: Mapping[str, Any]) -> Iterator[Row]:
    """Steps on one node of 8 B200."""
    for _, row in table_rows(document, "simumax_b200"):
        yield Row(row["case"], row["real_ms"] / 1e3, Step((_simumax_job(row["case"]),), "simumax-b200"))


def simumax_memory(document: Mapping[str, Any]) -> Iterator[Row]:
    """Most memory allocated on any rank of the same runs."""
    for _, row in table_rows(document, "simumax_b200"):
        yield Row(f"{row['case']}-memory", row["real_alloc_gib"] * 2**30, Held(_simumax_job(row["case"])))


_ZERO = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2}
_DTYPES = {"amp_bf16": "bf16", "bf16": "bf16", "amp_fp8": "fp8"}


def foundry(document: Mapping[str, Any]) -> Iterator[Row]:
    """FSDP: weights gathered and gradients reduced in every micro-batch; reduced in 32 bits unless all is in 16.

    The models have 50,368 words, a feed-forward of 4 h and learned positions.
    """
    shapes = named("foundry")
    for name, row in table_rows(document, "llm_foundry_mpt"):
        layers, hidden, heads = map(int, *shapes[row["Model"]])
        gpus, seq, batch = int(row["# GPUs"]), int(row["SeqLen (T)"]), int(row["GlobalBatchSize"])
        model = gpt({"layers": layers, "hidden": hidden, "heads": heads, "vocab": 50368, "seq": seq}, linear_bias=False)
        choices: dict[str, Any] = {
            "micro_batch": int(row["MicroBatchSize"]),
            "recompute": "full" if row["Activation Checkpointing"] == "True" else "none",
            "zero": _ZERO[row["Sharding Strategy"]],
            "gradient_bytes": 2 if row["MP Mode"] == "PURE" else 4.0,
            "dtype": _DTYPES[row["Precision"]],
        }
        one = job(model, seq, batch, dp=gpus, **choices)
        measured_s = batch * seq / (float(row["Throughput (T/s/GPU)"]) * gpus)
        label = f"{name}-{row['Model']}-{seq}-{gpus}-{row['GPU']}"
        yield Row(label, measured_s, Step((one,), placed(row["GPU"], "mosaicml", count=gpus)))
