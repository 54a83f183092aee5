"""A model's shape, from Hugging Face's `config.json`, and how a wafer runs it, from `system.json`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from simcore.documents import Node, read
from simcore.errors import InputError, Location, Problems, closest

__all__ = ["Experts", "Gqa", "Mla", "Model", "System", "read_model", "read_system"]


@dataclass(frozen=True, slots=True)
class Gqa:
    """Grouped-query attention: query heads, heads of keys and values, elements per head."""

    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1); `q_lora` 0: queries are not
    compressed.
    """

    heads: int
    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    value: int


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture of experts of the layers `first_layer`, `first_layer` + `every`, ..."""

    routed: int
    shared: int
    top_k: int
    intermediate: int
    first_layer: int
    every: int


@dataclass(frozen=True, slots=True)
class Model:
    """What the generator needs of a decoder-only transformer."""

    hidden: int
    intermediate: int
    layers: int
    vocabulary: int
    attention: Gqa | Mla
    experts: Experts | None = None

    def routes(self, layer: int) -> bool:
        """Whether a layer sends its tokens to experts."""
        experts = self.experts
        return experts is not None and layer >= experts.first_layer and layer % experts.every == 0

    def expert_layers(self) -> list[int]:
        """The layers that route, ascending."""
        return [layer for layer in range(self.layers) if self.routes(layer)]


@dataclass(frozen=True, slots=True)
class System:
    """Nodes on a grid and the degrees of parallelism of one phase (prefill or decode).

    Ranks count, innermost first, tensor (tp), sequence (sp), data (dp), pipeline (pp) for attention and tensor,
    expert (ep), pipeline for the feed-forward part.
    """

    nodes: int
    node_grid: tuple[int, int]
    core_grid: tuple[int, int]
    dp: int
    tp: int
    sp: int
    pp: int
    tp_ffn: int
    ep: int
    shared_copies: int
    routing: str
    exchange: str

    @property
    def stage_nodes(self) -> int:
        """Nodes of one pipeline stage."""
        return self.nodes // self.pp

    @property
    def cluster_nodes(self) -> int:
        """Nodes that hold the same batches: tensor times sequence parallel."""
        return self.tp * self.sp

    @property
    def cores(self) -> int:
        """Cores of one node."""
        return prod(self.core_grid)


def _required(root: Node, key: str, minimum: int = 1) -> int:
    """A whole number that must be there; a problem when it is not."""
    if key in root:
        return root[key].integer(minimum)
    root.problem(f"the key '{key}' is missing", expected=f'"{key}": an integer', found="a config without it")
    return minimum


def _optional(root: Node, key: str, default: int, minimum: int = 0) -> int:
    """A whole number, `default` when it is absent or null."""
    if key not in root or root[key].value is None:
        return default
    return root[key].integer(minimum)


def _gqa(root: Node) -> Gqa:
    heads = _required(root, "num_attention_heads")
    default = _required(root, "hidden_size") // heads
    return Gqa(heads, _optional(root, "num_key_value_heads", heads, 1), _optional(root, "head_dim", default, 1))


def _mla(root: Node) -> Mla:
    sizes = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    heads, (kv_lora, nope, rope, value) = (
        _required(root, "num_attention_heads"),
        [_required(root, key) for key in sizes],
    )
    return Mla(heads, _optional(root, "q_lora_rank", 0), kv_lora, nope, rope, value)


def _experts(root: Node) -> Experts:
    return Experts(
        routed=_required(root, "n_routed_experts"),
        shared=_optional(root, "n_shared_experts", 0),
        top_k=_required(root, "num_experts_per_tok"),
        intermediate=_required(root, "moe_intermediate_size"),
        first_layer=_optional(root, "first_k_dense_replace", 0),
        every=_optional(root, "moe_layer_freq", 1, 1),
    )


Attention = Callable[[Node], Gqa | Mla]
ARCHITECTURES: dict[str, tuple[Attention, Callable[[Node], Experts] | None]] = {
    "DeepseekV2ForCausalLM": (_mla, _experts),
    "DeepseekV3ForCausalLM": (_mla, _experts),
    "LlamaForCausalLM": (_gqa, None),
    "MistralForCausalLM": (_gqa, None),
    "Qwen2ForCausalLM": (_gqa, None),
    "Qwen3ForCausalLM": (_gqa, None),
}


def read_model(path: str | Path) -> Model:
    """The shape in a Hugging Face `config.json`; keys that do not change the shape are ignored, as there.

    Raises
    ------
    InputError
        For an architecture outside `ARCHITECTURES` or a missing or impossible size.
    """
    with Problems() as problems:
        root = read(path, problems)
        if "architectures" not in root:
            root.problem("the key 'architectures' is missing", expected=", ".join(ARCHITECTURES), found="no such key")
            raise InputError(problems.found)
        names = root["architectures"].sequence()
        chosen = names[0].choice(list(ARCHITECTURES)) if names else None
        if not chosen:
            if not names:
                root["architectures"].problem("no architecture is named", expected=", ".join(ARCHITECTURES))
            raise InputError(problems.found)
        attention, experts = ARCHITECTURES[chosen]
        model = Model(
            hidden=_required(root, "hidden_size"),
            intermediate=_required(root, "intermediate_size"),
            layers=_required(root, "num_hidden_layers"),
            vocabulary=_required(root, "vocab_size"),
            attention=attention(root),
            experts=experts(root) if experts else None,
        )
        if model.experts and model.experts.top_k > model.experts.routed:
            root["num_experts_per_tok"].problem(
                "more experts per token than there are", expected=f"at most n_routed_experts = {model.experts.routed}"
            )
    return model


DEGREES = ("num_nodes", "dp_attn", "dp_ffn", "tp_attn", "tp_ffn", "pp", "sp", "ep", "n_redundant_shared_exp")
GRIDS = ("node_grid", "core_grid")
ROUTING = ["identical", "uniform", "empirical_mmlu"]
EXCHANGES = ["alltoall", "allgather", "multicast"]


def _grid(node: Node) -> tuple[int, int]:
    """[rows, columns]."""
    numbers = [item.integer(1) for item in node.sequence()]
    if len(numbers) != 2:
        node.problem(f"{node.name} must be two numbers", expected="[rows, columns]", found=str(node.value))
        return (1, 1)
    return (numbers[0], numbers[1])


def read_system(path: str | Path, phase: str) -> System:
    """The settings of `phase`, "prefill", "decode" or "train" (by default those of prefill, then decode), in a
    `system.json`.

    Raises
    ------
    InputError
        For unknown or missing keys and for degrees that do not fit together.
    """
    with Problems() as problems:
        root = read(path, problems)
        root.keys(optional=("prefill", "decode", "train"))
        phase = "prefill" if phase == "train" and phase not in root and "prefill" in root else phase
        phase = "decode" if phase == "train" and phase not in root else phase
        if phase not in root:
            raise InputError.at(
                Location(str(path), 1, 1), f"there is no '{phase}' part", expected=f'"{phase}": {{"num_nodes": ...}}'
            )
        part = root[phase]
        part.keys(required=(*DEGREES, *GRIDS, "expert_workload_model", "moe_comm"))
        if problems.found:
            raise InputError(problems.found)
        degrees = {key: part[key].integer(1) for key in DEGREES}
        grids = [_grid(part[key]) for key in GRIDS]
        routing, exchange = part["expert_workload_model"].choice(ROUTING), part["moe_comm"].choice(EXCHANGES)
        if not problems.found:
            _check(part, degrees, grids[0])
    return System(
        nodes=degrees["num_nodes"],
        node_grid=grids[0],
        core_grid=grids[1],
        dp=degrees["dp_attn"],
        tp=degrees["tp_attn"],
        sp=degrees["sp"],
        pp=degrees["pp"],
        tp_ffn=degrees["tp_ffn"],
        ep=degrees["ep"],
        shared_copies=degrees["n_redundant_shared_exp"],
        routing=str(routing),
        exchange=str(exchange),
    )


def _check(part: Node, degrees: dict[str, int], grid: tuple[int, int]) -> None:
    """Note every rule that the degrees break; `part` has the place of each."""
    nodes = degrees["num_nodes"]
    stage = nodes // degrees["pp"]
    attention = degrees["dp_attn"] * degrees["tp_attn"] * degrees["sp"] * degrees["pp"]
    feed_forward = degrees["dp_ffn"] * degrees["tp_ffn"] * degrees["ep"] * degrees["pp"]
    full = degrees["ep"] == stage or degrees["tp_ffn"] == stage
    rules = [
        (prod(grid) == nodes, "node_grid", f"rows x columns = num_nodes = {nodes}"),
        (attention == nodes, "dp_attn", f"dp_attn * tp_attn * sp * pp = num_nodes = {nodes}"),
        (degrees["dp_ffn"] == 1, "dp_ffn", "1: the feed-forward part has no data parallelism"),
        (feed_forward == nodes, "ep", f"dp_ffn * tp_ffn * ep * pp = num_nodes = {nodes}"),
        (degrees["ep"] == 1 or degrees["tp_ffn"] == 1, "tp_ffn", "1 when ep > 1"),
        (full, "ep", f"ep or tp_ffn equal to the nodes of a pipeline stage, {stage}"),
        (degrees["n_redundant_shared_exp"] <= stage, "n_redundant_shared_exp", f"at most one copy a node, {stage}"),
        (
            degrees["tp_ffn"] == 1 or degrees["n_redundant_shared_exp"] == 1,
            "n_redundant_shared_exp",
            "1 when the experts are tensor parallel",
        ),
    ]
    for kept, key, expected in rules:
        if not kept:
            part[key].problem(f"{key} does not fit the other degrees", expected=expected)


def parse_layers(text: str, model: Model) -> list[str]:
    """The layers of `--layers` in the order of the model: "all", or names such as `decode0`, `lm_head`.

    >>> parse_layers("lm_head,decode0", Model(8, 8, 2, 16, Gqa(1, 1, 8)))
    ['decode0', 'lm_head']
    """
    known = [*(f"decode{layer}" for layer in range(model.layers)), "lm_head"]
    if text == "all":
        return known
    chosen = {name.strip() for name in text.split(",")}
    unknown = sorted(chosen - set(known))
    if unknown:
        raise InputError.at(
            "--layers",
            "no such layer in this model",
            expected=closest(unknown[0], known) if len(known) < 9 else f"all, or of decode0 ... {known[-2]}, lm_head",
            found=repr(unknown[0]),
        )
    return [name for name in known if name in chosen]


def parse_nodes(text: str, count: int) -> list[int]:
    """The nodes of `--nodes`: "all" or compact ranges.

    >>> parse_nodes("0-2,5", 8), parse_nodes("all", 3)
    ([0, 1, 2, 5], [0, 1, 2])
    """
    if text == "all":
        return list(range(count))
    nodes: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        numbers = (first, last or first)
        if not all(number.isdecimal() and len(number) < 10 and int(number) < count for number in numbers):
            raise InputError.at(
                "--nodes", "no such node", expected=f"all, or ranges of 0 ... {count - 1}: 0-3,5", found=repr(part)
            )
        nodes.update(range(int(first), int(last or first) + 1))
    return sorted(nodes)
