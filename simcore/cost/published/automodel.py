"""NeMo AutoModel on H100: PyTorch's FSDP and expert parallelism, Megatron's kernels (docs/performance-summary.mdx).

Left out are fine-tuning of adapters (most weights have no gradient), Nemotron (state-space layers) and GPT-OSS (windows
that alternate): no shape of ours says these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from simcore.cost.published.rows import Job, Row, Step, job
from simcore.cost.published.tables import shipped, spread, table_rows

_MODELS = {
    "DeepSeek V3 671B": "deepseek-v3",
    "Kimi K2": "kimi-k2",
    "Llama3 70B": "llama-3-70b",
    "Qwen3 MoE 30B": "qwen3-30b-a3b",
}


def automodel(document: Mapping[str, Any]) -> Iterator[Row]:
    """Pre-training. A stage's pipeline drains after every local batch: such rows are about one of them.

    Recomputation is not stated: the fastest that fits.
    """
    for name, row in table_rows(document, "nemo_automodel_h100"):
        if row["Model"] in _MODELS and str(row["kind"]).startswith("Pre"):
            local = int(row["GA"]) if int(row["PP"]) > 1 else 1
            measured_s = float(row["Time per Global Step (s)"]) / local
            yield Row(f"{name}-{row['Model']}", measured_s, Step(tuple(_jobs(row, local)), "h100"))


def _jobs(row: Mapping[str, Any], local: int) -> Iterator[Job]:
    model, batch = shipped(_MODELS[row["Model"]]), int(row["GBS"]) // local
    one = job(model, int(row["Seq Length"]), batch, **spread(row, int(row["#GPUs"])), zero=3)
    return (Job(one.model, replace(one.plan, recompute=kind)) for kind in ("none", "full"))
