"""AICB's SimAI inference text: the layers of DeepSeek, Qwen3 MoE and Qwen3-Next in prefill or decode, forward only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from simcore.documents import read
from simcore.errors import InputError, Problems, closest
from simcore.generate.aicb.options import refused
from simcore.generate.aicb.rows import TextFile, phase, row
from simcore.generate.aicb.times import Times, inference_times
from simcore.generate.aicb.training import FP8_SHARE
from simcore.workload.model import Layer


@dataclass(frozen=True, slots=True)
class InferenceOptions:
    """AICB's options of the inference generator with their defaults; `comp_filepath` is the file it looks for."""

    model_name: str
    config_file: str
    world_size: int = 1
    tensor_model_parallel_size: int = 1
    expert_model_parallel_size: int = 1
    pipeline_model_parallel: int = 1
    seq_length: int = 1
    micro_batch: int = 1
    phase: Literal["prefill", "decode"] = "decode"
    comp_filepath: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens a rank works on: one per sequence in decode; in prefill one sequence, whatever `micro_batch` says."""
        return self.micro_batch if self.phase == "decode" else self.seq_length


Shape = Mapping[str, int]
"""A configuration file's whole numbers that AICB reads."""

_DEEPSEEK = (
    *("num_layers", "dense_layer", "hidden_size", "num_attention_heads", "vocab_size", "moe_router_topk"),
    *("d_kv_c", "d_q_c", "d_r", "d_q", "d_kv", "shared_experts", "expert_dim"),
)
_QWEN = ("num_hidden_layers", "hidden_size", "num_experts_per_tok", "moe_intermediate_size")
_EXPERTS = ("router_expert", "duped_expert")
SPLIT = {"attention_layer": "", "attention_gdn": "", "dense_mlp": "mlp"}  # over tensor ranks, and the stage timed
_OPTIONAL = ("num_experts", "moe_router_topk", *_EXPERTS)


def inference_text(options: InferenceOptions) -> TextFile:
    """Make the file AICB's inference generator writes; InputError names the option or key where AICB stops."""
    family = _family(options)
    keys, names, _ = MODELS[family]
    for option in ("tensor_model_parallel_size", "expert_model_parallel_size"):
        size = getattr(options, option)
        if not 1 <= size <= options.world_size:
            raise refused(option, "the group does not fit the world size", f"1 to {options.world_size}", size, "")
    shape = _shape(options, keys)
    if family == "DeepSeek":
        _check_split(options, shape)
    times = inference_times(options.comp_filepath) if options.comp_filepath else {}
    made = _rows(options, shape, times, deepseek=family == "DeepSeek")
    return TextFile(_header(options, shape), [made[name] for name in names(shape)])


def told_name(options: InferenceOptions) -> str:
    """What AICB calls the model in its file's name: as the configuration file does, else all of a kind alike."""
    with Problems() as problems:
        entries = dict(read(options.config_file, problems).mapping())
        return entries["model_name"].text() if "model_name" in entries else MODELS[_family(options)][2]


def _family(options: InferenceOptions) -> str:
    family = next((part for part in MODELS if part in options.model_name), None)
    if family is None:
        known = f"a name with one of these: {closest(options.model_name, MODELS)}"
        raise InputError.at("MODEL", "AICB has no such model", expected=known, found=options.model_name)
    return family


def _shape(options: InferenceOptions, keys: tuple[str, ...]) -> Shape:
    """The numbers of the configuration; its other keys are Hugging Face's and mean nothing here."""
    with Problems() as problems:
        document = read(options.config_file, problems)
        entries = dict(document.mapping())
        experts = _EXPERTS if any(key in entries for key in _EXPERTS) else ("num_experts",)
        for key in (*keys, *experts):
            if key not in entries:
                document.problem(f"the key '{key}' is missing", expected=f"{key}: a whole number", found="nothing")
        wanted = dict.fromkeys((*keys, *_OPTIONAL))
        return {key: entries[key].integer() for key in wanted if key in entries}


def _check_split(options: InferenceOptions, shape: Shape) -> None:
    """Widths of DeepSeek's matrices that must divide among the tensor ranks."""
    heads, tp = shape["num_attention_heads"], options.tensor_model_parallel_size
    widths = {
        "vocab_size": shape["vocab_size"],
        "d_q": heads * (shape["d_q"] + shape["d_r"]),
        "d_kv": heads * shape["d_kv"],
        "expert_dim": shape["expert_dim"] if shape["dense_layer"] else 0,
    }
    for key, width in widths.items():
        if width % tp:
            message = f"a width of {width} (from '{key}') cannot be split over {tp} tensor-parallel ranks"
            raise refused("tensor_model_parallel_size", message, f"a divisor of {width}", tp)


def _header(options: InferenceOptions, shape: Shape) -> str:
    handed = 2 * options.micro_batch * options.seq_length * shape["hidden_size"]
    return (
        f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {options.tensor_model_parallel_size} "
        f"ep: {options.expert_model_parallel_size} pp: {options.pipeline_model_parallel} "
        f"all_gpus: {options.world_size} mode: 1 vpp: 1 ga: 1 checkpoints: 0 checkpoint_initiates: 0 "
        f"pp_comm: {handed if options.pipeline_model_parallel > 1 else 0}"
    )


def _rows(options: InferenceOptions, shape: Shape, times: Times, *, deepseek: bool) -> dict[str, Layer]:
    """Row of every kind of layer; tokens are exchanged also in a group of one expert rank."""
    tp = options.tensor_model_parallel_size
    reduced = 2 * options.tokens * shape["hidden_size"]
    combined = reduced * shape.get("moe_router_topk", shape.get("num_experts_per_tok", 0)) // tp
    idle = phase(0)

    def computed(name: str, stage: str = "", reduced_bytes: int = 0, collective: str = "NONE") -> Layer:
        return row(name, phase(times.get(stage or name, 1), collective, reduced_bytes), idle, idle)

    def exchange(name: str, size_bytes: int, time_ns: int) -> Layer:
        return row(name, phase(time_ns, "ALLTOALL_EP", size_bytes))

    rows = [computed("attention_norm"), computed("moe_norm"), computed("shared_experts", "mlp")]
    summed = (reduced, "ALLREDUCE") if tp > 1 else ()
    rows += [computed(name, stage, *summed) for name, stage in SPLIT.items()]
    # DeepSeek's router is not profiled.
    routing_ns = 1 if deepseek else times.get("moe_route", 1)
    rows += [exchange("moe_route", int(combined * FP8_SHARE), routing_ns)]
    rows += [exchange("moe_expert", combined, times.get("moe_expert", 1))]
    return {layer.name: layer for layer in rows}


def _deepseek(shape: Shape) -> Iterator[str]:
    """No norms; the first layers are dense."""
    for index in range(shape["num_layers"]):
        yield "attention_layer"
        if index < shape["dense_layer"]:
            yield "dense_mlp"
        else:
            yield from ["shared_experts"] * shape["shared_experts"]
            yield from ("moe_route", "moe_expert")


def _qwen(shape: Shape) -> Iterator[str]:
    """Full attention in every layer, or in every n-th and gated delta networks elsewhere."""
    interval = shape.get("full_attention_interval", 1)
    for index in range(shape["num_hidden_layers"]):
        attention = "attention_gdn" if (index + 1) % interval else "attention_layer"
        yield from ("attention_norm", attention, "moe_norm", "moe_route", "moe_expert")


MODELS: dict[str, tuple[tuple[str, ...], Callable[[Shape], Iterator[str]], str]] = {
    "Qwen3-Moe": (_QWEN, _qwen, "Qwen3-Moe-235B"),
    "Qwen3-Next": ((*_QWEN, "full_attention_interval"), _qwen, "Qwen3-Next-80B"),
    "DeepSeek": (_DEEPSEEK, _deepseek, "DeepSeek-671B"),
}
"""Part of a model's name -> keys its configuration must have, the rows of its layers in order, what AICB calls them."""
