"""The modules AICB builds a pipeline stage from, with the parameters one tensor-parallel rank holds of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from simcore.generate.aicb.options import Options, refused

Kind = Literal["embedding", "column", "row", "linear", "norm", "experts"]


@dataclass(frozen=True, slots=True)
class Module:
    """One module; `inputs` and `outputs` are widths before tensor parallelism, `elements` its parameters on a rank."""

    name: str
    kind: Kind
    elements: int
    inputs: int = 0
    outputs: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """An attention or feed-forward block; without sequence parallelism AICB writes a row for the block as a whole."""

    name: str
    modules: tuple[Module, ...]

    @property
    def elements(self) -> int:
        """Parameters of the block on a rank."""
        return sum(module.elements for module in self.modules)


def embedding(options: Options) -> Module:
    """The word and position tables.

    AICB counts the word table four times (for its fp32 copies) and sizes the position table by the sequence, not by
    `max_position_embeddings`.
    """
    words = 4 * (options.padded_vocab // options.tp) * options.hidden_size
    return Module("embedding_layer", "embedding", words + options.seq_length * options.hidden_size)


def head(options: Options) -> Module:
    """The LM head, part of every stage."""
    return _matrix(options, "final_column", "column", options.hidden_size, options.padded_vocab, "vocab_size")


def layer_norm(width: int) -> Module:
    """A norm's weight and bias."""
    return Module("fused", "norm", 2 * width)


def layers(options: Options) -> list[list[Block]]:
    """Blocks of every transformer layer of a stage; InputError names the option whose width cannot be split."""
    if not options.stage_layers:
        return []
    deepseek = options.frame == "DeepSeek"
    attention = _latent_attention(options) if deepseek else _attention(options)
    wanted = options.n_dense_layers if deepseek else 0 if options.moe_enable else options.stage_layers
    dense = max(0, min(wanted, options.stage_layers))
    kinds = [(dense, _mlp), (options.stage_layers - dense, _experts)]
    return [blocks for count, make in kinds if count for blocks in [[attention, make(options)]] * count]


def total_elements(options: Options) -> int:
    """Every parameter of a stage on a rank, each once, as the operation lists count them."""
    norms = 3 * options.hidden_size
    inner = sum(sum(block.elements for block in blocks) + norms for blocks in layers(options))
    return embedding(options).elements + inner + head(options).elements


def _split(options: Options, width: int, option: str) -> int:
    """One rank's share of `width`."""
    if width % options.tp:
        message = f"a width of {width} cannot be split over {options.tp} tensor-parallel ranks"
        raise refused(option, message, f"a multiple of {options.tp}", width)
    return width // options.tp


def _matrix(options: Options, name: str, kind: Kind, inputs: int, outputs: int, option: str = "") -> Module:
    """A matrix of which a rank holds some columns, some rows or everything; `option` says the width that is split."""
    rows = _split(options, inputs, option) if kind == "row" else inputs
    columns = _split(options, outputs, option) if kind == "column" else outputs
    bias = columns if options.add_bias_linear else 0
    return Module(name, kind, rows * columns + bias, inputs, outputs)


def _attention(options: Options) -> Block:
    """Multi-head attention; AICB has no grouped queries."""
    width, query = options.hidden_size, options.query_size
    qkv = _matrix(options, "attention_column", "column", width, 3 * query, "hidden_size")
    return Block("attention_layer", (qkv, _matrix(options, "attention_row", "row", query, width, "hidden_size")))


def _mlp(options: Options) -> Block:
    """Two matrices, also where the MLP is gated: the gate is missing."""
    width = options.hidden_size
    up = _matrix(options, "mlp_column", "column", width, options.ffn, "ffn_hidden_size")
    return Block("mlp_layer", (up, _matrix(options, "mlp_row", "row", options.ffn, width, "ffn_hidden_size")))


def _experts(options: Options) -> Block:
    """The experts of a rank; DeepSeek's are gated and have one shared expert, however many are asked for."""
    deepseek = options.frame == "DeepSeek"
    share = _split(options, options.ffn * (options.num_experts // options.ep), "ffn_hidden_size")
    experts = Module("mlp_moelayer", "experts", (3 if deepseek else 2) * options.hidden_size * share)
    shared = _mlp(options).modules if deepseek and options.n_shared_expert > 0 else ()
    return Block("mlp_moelayer", (experts, *shared))


def _latent_attention(options: Options) -> Block:
    """Multi-head latent attention: low-rank projections that every rank holds whole, then split ones."""
    width, heads, value = options.hidden_size, options.heads, options.v_head_dim
    query = heads * (options.qk_nope_dim + options.qk_rope_dim)
    key_value = heads * (options.qk_nope_dim + value)
    made = partial(_matrix, options, option="num_attention_heads")
    return Block(
        "attention_layer_mla",
        (
            made("attention_linear_q_lora", "linear", width, options.q_lora_rank),
            layer_norm(options.q_lora_rank),
            made("attention_q_column", "column", options.q_lora_rank, query),
            made("attention_linear_kv_lora", "linear", width, options.kv_lora_rank + options.qk_rope_dim),
            layer_norm(options.kv_lora_rank),
            made("attention_kv_column", "column", options.kv_lora_rank, key_value),
            made("attention_o_row", "row", heads * value, width),
        ),
    )
