"""Models from Hugging Face `config.json` files, by the table of families beside this file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from simcore.documents import Node, read
from simcore.errors import InputError, Problems, closest
from simcore.files import tell
from simcore.library import table
from simcore.model.shape import Experts, Latent, Model
from simcore.peers import refuse_foreign

MOST = 1 << 20  # of anything: layers, widths, words, experts
_NEAR = 0.85  # likeness of keys one of which may be meant by the other
_PARTS = {"experts": "experts", "latent": "latent attention"}


class _Entries:
    """The keys of a configuration, read with their checks."""

    def __init__(self, document: Node):
        if not isinstance(document.value, dict):  # what it is says more than that it is no mapping
            refuse_foreign("\n".join(document.source), document.file)
        self.document, self.nodes = document, _said(document)
        above = self.nodes
        if "text_config" in above:
            self.document = above["text_config"]
            self.nodes = {key: above[key] for key in above.keys() & {"tie_word_embeddings"}} | _said(self.document)
        parts = {**above, **self.nodes}.items()
        self.passed_over = [node for key, node in parts if key.endswith("_config") and node is not self.document]
        self.asked = set[str]()

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number; without a default the key must be there."""
        self.asked.add(key)
        if key in self.nodes:
            return self.nodes[key].integer(int(default is None), MOST)
        if default is None:
            self.document.problem(f"the key '{key}' is missing", expected=f"{key}: a whole number", found="nothing")
        return 1 if default is None else default

    def flag(self, key: str, default: bool = False) -> bool:
        """A truth value."""
        self.asked.add(key)
        return self.nodes[key].flag() if key in self.nodes else default

    def word(self, key: str) -> str:
        """Whatever is said, or nothing."""
        return str(self.nodes[key].value or "") if key in self.nodes else ""


def _said(document: Node) -> dict[str, Node]:
    """What a mapping says; a null says nothing."""
    return {key: node for key, node in document.mapping() if node.value is not None}


Fields = Mapping[str, Any]
"""Fields of a model, as far as they are read."""


def configuration(path: str | Path) -> Model:
    """Read the model a `config.json` describes, of one that also sees or hears what writes: its text model.

    InputError says what is missing, wrong or of an unknown family.
    """
    with Problems() as problems:
        entries, place = _Entries(read(path, problems)), Path(path)
        name = place.resolve().parent.name if place.stem == "config" else place.stem
        fields: dict[str, Any] = {}
        for field, origin in FAMILIES[_family(entries, problems)].items():
            fields[field] = _read(origin, entries, fields)
        own: dict[str, Any] = {field: value for field, value in fields.items() if "." not in field}
        for part, kind in (("experts", Experts), ("latent", Latent)):
            inner = {field.partition(".")[2]: value for field, value in fields.items() if field.startswith(part)}
            own |= {part: kind(**inner)} if inner else {}
        model = Model(name, **own)
        if model.head_dim < 1 or model.heads % model.key_heads:
            message = "heads have no channels" if model.head_dim < 1 else "heads do not share keys and values evenly"
            found = f"{model.heads} of {model.hidden} elements, {model.key_heads} of keys"
            entries.document.problem(message, found=found)
        if model.experts and model.experts.top_k > model.experts.count:
            asked = entries.nodes.get("num_experts_per_tok", entries.document)
            asked.problem("more experts per token than there are", expected=f"at most {model.experts.count}")
        _check_layers(entries, model)
    for node in entries.passed_over:
        tell(f"{node.location}: '{node.name}' is not read: the text model is taken, and number formats from options")
    _tell_unread(entries, model)
    return model


def _tell_unread(entries: _Entries, model: Model) -> None:
    """Keys that are lost: of a part that models of the family lack, or nearly one that was looked for in vain."""
    missing = entries.asked - entries.nodes.keys()
    for key, node in entries.nodes.items():
        if key in entries.asked or not node.value:
            continue
        about = [_PARTS.get(field) for field, keys in _KEYS.items() if key in keys]
        lacking = [name for part, name in _PARTS.items() if about == [name] and getattr(model, part) is None]
        meant = [f"'{one}' may be meant" for one in get_close_matches(key, missing, 1, _NEAR)]
        for why in (*(f"models of this family have no {name}" for name in lacking), *meant):
            tell(f"{node.location}: '{key}' is not read: {why}")


def _check_layers(entries: _Entries, model: Model) -> None:
    """Whether lists of layers say what the family's other keys do."""
    experts = [layer for layer in range(model.depth) if not model.dense(layer)]
    if "moe_layers" in entries.nodes and [one.value for one in entries.nodes["moe_layers"].sequence()] != experts:
        message = "these are not the layers that have experts by the other keys"
        entries.nodes["moe_layers"].problem(message, expected=str(experts))
    windowed = "chunked_attention" if model.pieces else "sliding_attention"
    _check_windows(entries, model, "layer_types", "full_attention", windowed)
    if model.pieces and model.window:  # so are layers with rotary positions
        _check_windows(entries, model, "no_rope_layers", 0, 1)


def _check_windows(entries: _Entries, model: Model, key: str, *words: str | int) -> None:
    """Whether a list says of every layer what it has to: one word of those that see all, one of others."""
    for layer, said in enumerate(entries.nodes[key].sequence() if key in entries.nodes else ()):
        usual = words[model.kind(layer).window > 0]
        if said.value != usual:
            said.problem(f"layer {layer} is not what layers of this family are there", expected=str(usual))
            break


def _family(entries: _Entries, problems: Problems) -> str:
    """A configuration's family, which its type says or, where there is none, its architecture."""
    kind, named = entries.nodes.get("model_type"), entries.nodes.get("architectures")
    if kind is not None:
        for said in (str(kind.value), str(kind.value).removesuffix("_text")):  # of those that also see
            if said in FAMILIES:
                return said
        kind.problem("models of this family cannot be read", expected=closest(str(kind.value), FAMILIES))
    elif named is not None and (names := named.sequence()):
        if (family := ARCHITECTURES.get(str(names[0].value))) is not None:
            return family
        names[0].problem("models of this family cannot be read", expected=closest(str(names[0].value), ARCHITECTURES))
    elif {"attn_heads", "num_blocks"} <= entries.nodes.keys():
        return "calculon"  # whose files say neither
    else:
        refuse_foreign("\n".join(entries.document.source), entries.document.file)
        found = ", ".join(entries.nodes)[:80]
        message = "neither 'model_type' nor 'architectures' is there: this is no Hugging Face configuration"
        entries.document.problem(message, expected=f"one of {', '.join(FAMILIES)}", found=found or "nothing")
    raise InputError(problems.found)


def _read(origin: str, entries: _Entries, found: Fields) -> Any:
    """The value of a field from where `families.txt` says it is."""
    if origin[0] == "!":
        said = origin[1:]
        return int(said) if said.isdecimal() else {"yes": True, "no": False}.get(said, said)
    if origin[0] == "@":
        return _READERS[origin[1:]](entries, found)
    key, asks, default = origin.partition("?")
    if asks:
        return entries.flag(key, default=bool(default))
    key, _, default = origin.partition(":")
    key = next((one for one in key.split("|") if one in entries.nodes), key.partition("|")[0])
    times, _, field = default.partition("*")
    return entries.integer(key, int(times) * found.get(field, 1) if default else None)


def _sparse(entries: _Entries, _: Fields) -> int:
    """Every how manyth layer has experts."""
    node = entries.nodes.get("mlp_only_layers")
    if node is not None and node.value:
        node.problem("only models with experts in every so manyth layer can be read", expected="[]")
    return max(1, entries.integer("decoder_sparse_step", 1))


def _dense(entries: _Entries, found: Fields) -> int:
    """Layers without experts ahead of the first that has some, of every so manyth."""
    every: int = found["experts.every"]
    return every * -(-entries.integer("first_k_dense_replace", 0) // every)


def _late(entries: _Entries, found: Fields) -> int:
    """The window of Qwen's layers from one on, where they have one at all."""
    node, first = entries.nodes.get("max_window_layers", entries.document), entries.integer("max_window_layers", 28)
    if not entries.flag("use_sliding_window") or first >= found["layers"]:
        return 0
    if first:
        node.problem("only models whose layers all have a window, or none, can be read", expected="0", found=str(first))
    return entries.integer("sliding_window", 4096)


def _unrotated(entries: _Entries, _: Fields) -> int:
    """No window: those of SmolLM3 are on layers without rotary positions, every fourth, and the others see all."""
    windows = entries.flag("use_sliding_window") and entries.integer("sliding_window", 0)
    if windows and "layer_types" not in entries.nodes:
        entries.nodes["sliding_window"].problem("only models whose layers see all can be read", expected="null")
    return 0


def _modules(entries: _Entries, _: Fields) -> int:
    """MTP modules where they are used, each with a layer."""
    if entries.integer("mtp_transformer_layers", 1) > 1:
        entries.nodes["mtp_transformer_layers"].problem("only MTP modules of one layer can be read", expected="1")
    return entries.integer("num_mtp_modules", 0) if entries.flag("use_mtp", default=True) else 0


def _falcon_keys(entries: _Entries, found: Fields) -> int:
    """Keys are shared by groups of heads, or before that by all."""
    heads: int = found["heads"]
    if entries.flag("new_decoder_architecture"):
        return entries.integer("num_kv_heads", heads)
    return 1 if entries.flag("multi_query", default=True) else heads


def _falcon_norms(entries: _Entries, found: Fields) -> int:
    """Blocks beside each other share a norm, but for those of the newer architecture."""
    apart = not found["parallel_block"] or entries.flag("new_decoder_architecture")
    return entries.integer("num_ln_in_parallel_attn", 1 + apart)


def _opt_hidden(entries: _Entries, _: Fields) -> int:
    """Words of OPT 350M are narrower than its layers, and projected."""
    hidden = entries.integer("hidden_size")
    if (words := entries.integer("word_embed_proj_dim", hidden)) != hidden:
        message = "only models whose words are as wide as their layers can be read"
        entries.nodes["word_embed_proj_dim"].problem(message, expected=str(hidden), found=str(words))
    return hidden


_READERS: Mapping[str, Callable[[_Entries, Fields], Any]] = {
    "sparse": _sparse,
    "late": _late,
    "unrotated": _unrotated,
    "frequency": lambda entries, _: max(1, entries.integer("moe_layer_freq", 1)),
    "interleaved": lambda entries, _: max(1, entries.integer("interleave_moe_layer_step", 1)),
    "ahead": lambda _, found: found["experts.every"] - 1,
    "dense": _dense,
    "shared": lambda entries, found: found["experts.ffn"] * entries.integer("n_shared_experts", 0),
    "balanced": lambda entries, _: entries.word("topk_method") == "noaux_tc",  # a bias balances the experts' loads
    "modules": _modules,
    "falcon_keys": _falcon_keys,
    "falcon_parallel": lambda one, _: one.flag("new_decoder_architecture") or one.flag("parallel_attn", default=True),
    "falcon_norms": _falcon_norms,
    "stablelm_norms": lambda _, found: 1 if found["parallel_block"] else 2,
    "opt_hidden": _opt_hidden,
    "opt_positions": lambda entries, _: 2 + entries.integer("max_position_embeddings"),
    "t5_gated": lambda entries, _: entries.word("feed_forward_proj").startswith("gated"),  # from 1.1 on
    "wide": lambda entries, _: entries.integer("intermediate_size_mlp", entries.integer("intermediate_size")),
}
FAMILIES: dict[str, dict[str, str]] = {"-": {}}
"""`model_type` -> field of a model -> where its value is from."""
ARCHITECTURES: dict[str, str] = {}
"""The first of `architectures` -> `model_type`."""
for _type, _architecture, _like, *_fields in table(__file__, "families.txt"):
    FAMILIES[_type] = FAMILIES[_like] | dict(each.split("=") for cell in _fields for each in cell.split())
    ARCHITECTURES |= {_architecture: _type} if _architecture != "-" else {}
for _type in ("-", "base"):
    del FAMILIES[_type]
_KEYS: dict[str, set[str]] = {}
"""Part of a model, or a field of its own -> keys that say something of it."""
for _family_fields in FAMILIES.values():
    for _field, _origin in _family_fields.items():
        _KEYS.setdefault(_field.partition(".")[0], set()).add(re.split("[|?:]", _origin)[0])
