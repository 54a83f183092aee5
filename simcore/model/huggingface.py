"""Models from Hugging Face `config.json` files; what a family's parameters are follows its reference implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from simcore.documents import Node, read
from simcore.errors import InputError, Problems, closest
from simcore.model.shape import Experts, Latent, Model

MOST = 1 << 20  # of anything: layers, widths, words, experts


class _Entries:
    """The keys of a configuration, read with their checks."""

    def __init__(self, document: Node):
        self.usual: dict[str, int] = {}
        nodes = dict(document.mapping())
        self.document = nodes.get("text_config", document)
        self.nodes = dict(self.document.mapping()) if self.document is not document else nodes

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; without a default the key must be there, or the family have a usual value."""
        node, default = self.nodes.get(key), self.usual.get(key, default)
        if node is not None and node.value is not None:
            return node.integer(int(default is None), MOST)
        if default is None:
            self.document.problem(f"the key '{key}' is missing", expected=f"{key}: a whole number", found="nothing")
        return 1 if default is None else default

    def flag(self, key: str, default: bool = False) -> bool:
        """A truth value."""
        node = self.nodes.get(key)
        return default if node is None or node.value is None else node.flag()


def configuration(path: str | Path) -> Model:
    """Read the model a `config.json` describes, of one that also sees or hears what writes: its text model.

    InputError says what is missing, wrong or of an unknown family.
    """
    with Problems() as problems:
        entries, place = _Entries(read(path, problems)), Path(path)
        name = place.resolve().parent.name if place.stem == "config" else place.stem
        model = _family(entries, problems)(name, entries)
        if model.head_dim < 1 or model.heads % model.key_heads:
            message = "heads have no channels" if model.head_dim < 1 else "heads do not share keys and values evenly"
            found = f"{model.heads} of {model.hidden} elements, {model.key_heads} of keys"
            entries.document.problem(message, found=found)
        if model.experts and model.experts.top_k > model.experts.count:
            expected = f"at most {model.experts.count}"
            entries.nodes["num_experts_per_tok"].problem("more experts per token than there are", expected=expected)
    return model


def _family(entries: _Entries, problems: Problems) -> Callable[[str, _Entries], Model]:
    """The reader of a configuration's family, which its type says or, where there is none, its architecture."""
    kind, named = entries.nodes.get("model_type"), entries.nodes.get("architectures")
    if kind is not None:
        if str(kind.value) in FAMILIES:
            return FAMILIES[str(kind.value)]
        kind.problem("models of this family cannot be read", expected=closest(str(kind.value), FAMILIES))
    elif named is not None and (names := named.sequence()):
        if (family := ARCHITECTURES.get(str(names[0].value))) is not None:
            return FAMILIES[family]
        names[0].problem("models of this family cannot be read", expected=closest(str(names[0].value), ARCHITECTURES))
    else:
        found = ", ".join(entries.nodes)[:80]
        message = "neither 'model_type' nor 'architectures' is there: this is no Hugging Face configuration"
        entries.document.problem(message, expected=f"one of {', '.join(FAMILIES)}", found=found or "nothing")
    raise InputError(problems.found)


def _base(
    name: str, entries: _Entries, experts: Experts | None = None, *, ffn: int = 0, **traits: int | Latent | None
) -> Model:
    """What the LLaMA-like families share; `ffn` where another key says it."""
    heads = entries.integer("num_attention_heads")
    return Model(
        name,
        layers=entries.integer("num_hidden_layers"),
        hidden=entries.integer("hidden_size"),
        heads=heads,
        ffn=ffn or entries.integer("intermediate_size"),
        vocab=entries.integer("vocab_size"),
        kv_heads=entries.integer("num_key_value_heads", heads),
        head_size=entries.integer("head_dim", 0),
        tied=entries.flag("tie_word_embeddings"),
        experts=experts,
        **traits,  # type: ignore[arg-type]
    )


def _llama(name: str, entries: _Entries) -> Model:
    return _base(name, entries, linear_bias=entries.flag("mlp_bias"), qkv_bias=entries.flag("attention_bias"))


def _mistral(name: str, entries: _Entries) -> Model:
    return _base(name, entries, window=entries.integer("sliding_window", 0))


def _mixtral(name: str, entries: _Entries) -> Model:
    count, top_k = entries.integer("num_local_experts"), entries.integer("num_experts_per_tok", 2)
    return _base(name, entries, Experts(count, top_k, entries.integer("intermediate_size")))


def _qwen2(name: str, entries: _Entries) -> Model:
    return _base(name, entries, qkv_bias=True)


def _qwen3(name: str, entries: _Entries) -> Model:
    return _base(name, entries, query_key_norm=True, qkv_bias=entries.flag("attention_bias"))


def _qwen_experts(entries: _Entries, shared_ffn: int = 0) -> Experts:
    """Experts in every layer, or in the last of every few; a shared one has a gate of its own."""
    if "mlp_only_layers" in entries.nodes and entries.nodes["mlp_only_layers"].value:
        message = "only models with experts in every so manyth layer can be read"
        entries.nodes["mlp_only_layers"].problem(message, expected="[]")
    every, width = max(1, entries.integer("decoder_sparse_step", 1)), entries.integer("moe_intermediate_size")
    count, top_k = entries.integer("num_experts"), entries.integer("num_experts_per_tok")
    return Experts(count, top_k, width, shared_ffn, every - 1, shared_gate=shared_ffn > 0, every=every)


def _qwen2_moe(name: str, entries: _Entries) -> Model:
    experts = _qwen_experts(entries, entries.integer("shared_expert_intermediate_size"))
    return replace(_qwen2(name, entries), experts=experts)


def _qwen3_moe(name: str, entries: _Entries) -> Model:
    return replace(_qwen3(name, entries), experts=_qwen_experts(entries))


def _shared_experts(entries: _Entries) -> Experts:
    """Experts beside some that every token has, behind layers without any."""
    width, every = entries.integer("moe_intermediate_size"), max(1, entries.integer("moe_layer_freq", 1))
    return Experts(
        entries.integer("n_routed_experts"),
        entries.integer("num_experts_per_tok"),
        width,
        width * entries.integer("n_shared_experts", 0),
        every * -(-entries.integer("first_k_dense_replace", 0) // every),
        router_bias="topk_method" in entries.nodes and entries.nodes["topk_method"].value == "noaux_tc",
        every=every,
    )


def _deepseek(name: str, entries: _Entries) -> Model:
    experts = _shared_experts(entries)
    latent = Latent(
        entries.integer("q_lora_rank", 0),
        entries.integer("kv_lora_rank"),
        entries.integer("qk_rope_head_dim"),
        entries.integer("qk_nope_head_dim"),
        entries.integer("v_head_dim"),
    )
    return _base(name, entries, experts, latent=latent, mtp_layers=entries.integer("num_nextn_predict_layers", 0))


def _glm4_moe(name: str, entries: _Entries) -> Model:
    """DeepSeek's experts behind grouped keys."""
    traits = {"qkv_bias": entries.flag("attention_bias"), "query_key_norm": entries.flag("use_qk_norm")}
    mtp = entries.integer("num_nextn_predict_layers", 0)
    return _base(name, entries, replace(_shared_experts(entries), router_bias=True), mtp_layers=mtp, **traits)


def _gpt2(name: str, entries: _Entries) -> Model:
    hidden = entries.integer("n_embd")
    return Model(
        name,
        layers=entries.integer("n_layer"),
        hidden=hidden,
        heads=entries.integer("n_head"),
        ffn=entries.integer("n_inner", 4 * hidden),
        vocab=entries.integer("vocab_size"),
        gated=False,
        tied=entries.flag("tie_word_embeddings", default=True),
        positions=entries.integer("n_positions"),
        norm="layer",
        linear_bias=True,
    )


def _nemotron(name: str, entries: _Entries) -> Model:
    return replace(_base(name, entries), gated=False, norm="layer")


def _gpt_neox(name: str, entries: _Entries) -> Model:
    parallel = entries.flag("use_parallel_residual", default=True)
    return replace(_nemotron(name, entries), linear_bias=True, parallel_block=parallel)


def _opt(name: str, entries: _Entries) -> Model:
    """Positions are counted from 2 (Zhang et al. 2022)."""
    positions = 2 + entries.integer("max_position_embeddings")
    read = _base(name, entries, ffn=entries.integer("ffn_dim"), positions=positions)
    tied = entries.flag("tie_word_embeddings", default=True)
    return replace(read, gated=False, norm="layer", linear_bias=True, tied=tied)


def _falcon(name: str, entries: _Entries) -> Model:
    """Keys are shared by groups of heads, or before that by all; attention stands beside the feed-forward block."""
    read, grouped = _base(name, entries, ffn=1), entries.flag("new_decoder_architecture")
    shared = 1 if entries.flag("multi_query", default=True) else read.heads
    return replace(
        read,
        ffn=entries.integer("ffn_hidden_size", 4 * read.hidden),
        kv_heads=entries.integer("num_kv_heads", read.heads) if grouped else shared,
        gated=False,
        norm="layer",
        linear_bias=entries.flag("bias"),
        parallel_block=grouped or entries.flag("parallel_attn", default=True),
        tied=entries.flag("tie_word_embeddings", default=True),
    )


def _gemma(name: str, entries: _Entries) -> Model:
    return replace(_base(name, entries), tied=entries.flag("tie_word_embeddings", default=True))


def _gemma2(name: str, entries: _Entries) -> Model:
    """Norms before and behind both blocks; every second layer sees all."""
    return replace(_gemma(name, entries), norms=4, window=entries.integer("sliding_window", 4096), full_every=2)


def _gemma3(name: str, entries: _Entries) -> Model:
    """Files leave out what is as in the class (Gemma3TextConfig of Transformers)."""
    entries.usual = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
    every = entries.integer("sliding_window_pattern", 6)
    return replace(_gemma2(name, entries), full_every=every, query_key_norm=True)


def _gpt_oss(name: str, entries: _Entries) -> Model:
    """Every second layer sees all; attention has sinks; everything but norms a bias (OpenAI 2025)."""
    count, top_k = entries.integer("num_local_experts"), entries.integer("num_experts_per_tok", 4)
    experts = Experts(count, top_k, entries.integer("intermediate_size"), router_bias=True)
    read = _base(name, entries, experts, window=entries.integer("sliding_window", 0), full_every=2)
    return replace(read, linear_bias=True, sinks=True)


def _llama4(name: str, entries: _Entries) -> Model:
    """Experts beside a shared one; but for every fourth, layers see the piece of a sequence that a token is in.

    Norms of queries and keys have no weights, which are counted here: as many as a head has channels.
    """
    every, width = max(1, entries.integer("interleave_moe_layer_step", 1)), entries.integer("intermediate_size")
    count, top_k = entries.integer("num_local_experts"), entries.integer("num_experts_per_tok", 1)
    experts = Experts(count, top_k, width, width, every - 1, every=every)
    read = _base(name, entries, experts, ffn=entries.integer("intermediate_size_mlp", width))
    window, normed = entries.integer("attention_chunk_size", 0), entries.flag("use_qk_norm")
    return replace(read, window=window, full_every=4, pieces=True, query_key_norm=normed)


def _t5(name: str, entries: _Entries) -> Model:
    """An encoder and a decoder with cross-attention (Raffel et al. 2020); from 1.1 on gated, with a head of its own."""
    layers, projection = entries.integer("num_layers"), entries.nodes.get("feed_forward_proj")
    return Model(
        name,
        layers=entries.integer("num_decoder_layers", layers),
        hidden=entries.integer("d_model"),
        heads=entries.integer("num_heads"),
        ffn=entries.integer("d_ff"),
        vocab=entries.integer("vocab_size"),
        head_size=entries.integer("d_kv"),
        gated=projection is not None and str(projection.value).startswith("gated"),
        tied=entries.flag("tie_word_embeddings", default=True),
        encoder_layers=layers,
        relative_positions=entries.integer("relative_attention_num_buckets", 32),
    )


_KNOWN: tuple[tuple[str, str, Callable[[str, _Entries], Model]], ...] = (
    ("llama", "LlamaForCausalLM", _llama),
    ("mistral", "MistralForCausalLM", _mistral),
    ("mixtral", "MixtralForCausalLM", _mixtral),
    ("qwen2", "Qwen2ForCausalLM", _qwen2),
    ("qwen2_moe", "Qwen2MoeForCausalLM", _qwen2_moe),
    ("qwen3", "Qwen3ForCausalLM", _qwen3),
    ("qwen3_moe", "Qwen3MoeForCausalLM", _qwen3_moe),
    ("deepseek_v2", "DeepseekV2ForCausalLM", _deepseek),
    ("deepseek_v3", "DeepseekV3ForCausalLM", _deepseek),
    ("gpt2", "GPT2LMHeadModel", _gpt2),
    ("gpt_oss", "GptOssForCausalLM", _gpt_oss),
    ("gemma", "GemmaForCausalLM", _gemma),
    ("gemma2", "Gemma2ForCausalLM", _gemma2),
    ("gemma3_text", "Gemma3ForCausalLM", _gemma3),
    ("glm4_moe", "Glm4MoeForCausalLM", _glm4_moe),
    ("nemotron", "NemotronForCausalLM", _nemotron),
    ("phi3", "Phi3ForCausalLM", _llama),
    ("falcon", "FalconForCausalLM", _falcon),
    ("gpt_neox", "GPTNeoXForCausalLM", _gpt_neox),
    ("opt", "OPTForCausalLM", _opt),
    ("t5", "T5ForConditionalGeneration", _t5),
    ("llama4_text", "Llama4ForCausalLM", _llama4),
)
FAMILIES = {family: reader for family, _, reader in _KNOWN}
"""`model_type` -> reader."""

ARCHITECTURES = {architecture: family for family, architecture, _ in _KNOWN}
"""The first of `architectures` -> `model_type`."""
