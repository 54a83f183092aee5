"""NVIDIA's tables of Megatron-Bridge and AutoModel: pre-training of dense models and mixtures, Hopper to Blackwell.

Left out, and why: fine-tuning (LoRA freezes weights, SFT packs sequences), Nemotron (state-space layers), DeepSeek V4
(no published shape), GPT-OSS (its windows alternate, no shape here), runs that drop tokens, and the rows of release
25.09, which give two precisions or two layouts in one cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from simcore.compute.accelerators import accelerator
from simcore.cost.published.megatron import MODERN
from simcore.cost.published.rows import Job, Row, Step, job, named
from simcore.cost.published.tables import number, spread, table_rows
from simcore.cost.systems import CLUSTERS, placed, usual_fabric
from simcore.model.memory import PEAK_MARGIN, peak
from simcore.model.presets import SHIPPED
from simcore.model.shape import Model
from simcore.model.steps import Module

_MODELS = {name: SHIPPED[preset] for name, ((preset,),) in named("bridge").items()}
_TYPES = {"FP8": "fp8", "MXFP8": "fp8", "FP8-CS": "fp8", "FP8-MX": "fp8", "NVFP4": "fp4", "BF16": "bf16"}
# What the host keeps under FSDP (cpu_offloading_num_layers of scripts/performance/configs/llama).
_LAYERS = {"GB200": 40, "GB300": 20}
_KEPT_BY_HOST = {name: {"offload": ("activations",), "offload_layers": layers} for name, layers in _LAYERS.items()}
# What the recipe says of a model on a device where the degrees of the table's row hold no such weights.
_RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("llama-3-70b", "GB300"): {"pp": 4, "virtual_stages": 5, "micro_batch": 1},
}
_ONE_GRAPH = "26.06"  # the first release whose recipes have it


def _rows(document: Mapping[str, Any], *, mixtures: bool) -> Iterator[Row]:
    for name, row in table_rows(document, "nemo_megatron_bridge"):
        heading = dict([str(row["heading"]).split(": ", 1)])
        model, system = heading.get("Model", row["Model"]), str(heading.get("System", row["System"]))
        shape = _MODELS.get(model)
        if (
            shape
            and row["Precision"] in _TYPES
            and bool(shape.experts) == mixtures
            and str(row["kind"]).startswith("Pre")
        ):
            row_name = f"{name.removeprefix('nemo_megatron_')}-{system}-{row['Precision']}"
            yield _row(row_name, row, shape, system.removeprefix("DGX-"))


def _row(name: str, row: Mapping[str, Any], model: Model, device: str) -> Row:
    """One row; FSDP where the table's column says over how many ranks.

    What mixtures compute again it leaves out: what Megatron-Core offers them, least first, until the job fits. Dense
    models that do not fit as the table says run as their recipe says, where that is known.
    """
    gpus, batch, seq = (int(row[key]) for key in ("#-GPUs", "GBS", "Sequence Length"))
    choices = {**MODERN, "dtype": _TYPES[row["Precision"]]}
    if number(row["FSDP"]) > 1:
        choices |= {"zero": 3, **_KEPT_BY_HOST.get(device, {})}
    one = job(model, seq, batch, **spread(row, gpus), **choices, gradient_bytes=2)
    measured_s = batch * seq / (float(row["Tokens / sec / GPU"]) * gpus)
    node_ranks = usual_fabric(accelerator(device)).node_ranks
    cluster = placed(device, _recipe(one, str(row["release"]), node_ranks), count=gpus)
    if model.experts:
        *tried, least = one, *_computed_again(one)
        one = next((job for job in tried if peak(*job).total <= cluster.memory_bytes), least)
    elif peak(*one).total * (1 - PEAK_MARGIN) > cluster.memory_bytes:
        one = Job(model, replace(one.plan, **_RECIPES.get((model.name, device), {})))
    return Row(name, measured_s, Step((one,), cluster))


def _recipe(one: Job, release: str, node_ranks: int) -> str:
    """The software of a job.

    From 26.06 on recipes of mixtures in 8 bits differ, but for those of DeepSeek-V3 and Kimi K2 with two sequences a
    micro-batch. DeepSeek-V3's with experts over nodes exchanges tokens by DeepEP, beside another micro-batch.
    """
    plan, latent = one.plan, one.model.latent
    if one.model.experts and release < _ONE_GRAPH:
        return "megatron-core-deepep" if latent and plan.ep > node_ranks else "megatron-core-26.04"
    changed = one.model.experts and plan.dtype == "fp8" and not (latent and plan.micro_batch > 1)
    return "megatron-core-26.06" if changed else "megatron-core"


def _computed_again(one: Job) -> Iterator[Job]:
    """A mixture that computes its activations again; the expansion of its latents, too; its norms, too."""
    modules = [Module.ACTIVATION, *[Module.UP] * bool(one.model.latent), Module.NORM]
    for count in range(1, len(modules) + 1):
        again = tuple(map(str, modules[:count]))
        yield Job(one.model, replace(one.plan, recompute="selective", recompute_modules=again))


dense, mixtures = partial(_rows, mixtures=False), partial(_rows, mixtures=True)


_AUTOMODEL = {name: SHIPPED[preset] for name, ((preset,),) in named("automodel").items()}


def automodel(document: Mapping[str, Any]) -> Iterator[Row]:
    """NeMo AutoModel on H100: PyTorch's FSDP and expert parallelism, Megatron's kernels (docs/performance-summary.mdx).

    A stage's pipeline drains after every local batch: such rows are about one of them. The configurations that the
    table links to compute all layers again (`activation_checkpointing`); who exchanges tokens stands in the row.
    """
    for name, row in table_rows(document, "nemo_automodel_h100"):
        if row["Model"] in _AUTOMODEL and str(row["kind"]).startswith("Pre"):
            local = int(row["GA"]) if int(row["PP"]) > 1 else 1
            model, batch = _AUTOMODEL[row["Model"]], int(row["GBS"]) // local
            degrees, kernels = spread(row, int(row["#GPUs"])), str(row["Kernel Optimizations"])
            one, cluster = (
                job(model, int(row["Seq Length"]), batch, **degrees, zero=3, recompute="full"),
                CLUSTERS["h100"],
            )
            software = replace(cluster.software, exchange="deepep" if "DeepEP" in kernels else "nccl")
            measured_s = float(row["Time per Global Step (s)"]) / local
            yield Row(f"{name}-{row['Model']}", measured_s, Step((one,), replace(cluster, software=software)))
