"""From options to a model and a plan: a shipped or read model, changed by the shape options given.

Options are those of a command line, or of a specification: a YAML file, made into a step when it is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simcore.compute.accelerators import ELEMENT_BYTES
from simcore.documents import Node, placed, read, read_text
from simcore.errors import InputError, Problems
from simcore.generate.aicb.options import FRAMES, Options
from simcore.generate.aicb.presets import MODELS, preset
from simcore.library import table
from simcore.model.effects import idle
from simcore.model.plan import NAMES, OPTIONS, Plan
from simcore.model.presets import model as named_model
from simcore.model.shape import Experts, Latent, Model
from simcore.options import number

FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8": "fp8", "float4": "fp4"}
"""The names of number formats as Megatron-LM and DeepSpeed say them, and as accelerators' rates do."""


def number_format(name: str) -> str:
    """What accelerators' rates call a format of either name; InputError names the known."""
    if name not in (*FORMATS, *FORMATS.values()):
        raise InputError.at("--dtype", "unknown number format", expected=", ".join(FORMATS), found=name)
    return FORMATS.get(name, name)


EXTRA = dict(table(__file__, "extra.txt"))
"""Options of the corrected workload that AICB does not have, and their kinds."""
BESIDE = dict(table(__file__, "beside.txt"))
"""Options that change neither model nor plan, and what they matter for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A step as it is asked for: AICB's options and those it does not have, which of them were given, and the `-m`."""

    options: Options
    extra: Mapping[str, Any] = field(default_factory=dict)
    given: Set[str] = frozenset()
    size: str | None = None

    @classmethod
    def of(cls, frame: str, size: str | None, given: Mapping[str, Any]) -> Asked:
        """What is given, else what the size stands for, else AICB's defaults."""
        known: dict[str, Any] = dict(preset(frame, size)) if size else {}
        own = {name: value for name, value in given.items() if name not in EXTRA}
        extra = {name: value for name, value in given.items() if name in EXTRA}
        return cls(Options(**{"frame": frame} | known | own), extra, set(given), size)

    @property
    def values(self) -> dict[str, Any]:
        """All options; None of those that are not AICB's and were not given."""
        return asdict(self.options) | dict.fromkeys(EXTRA) | {**self.extra}


def model_of(asked: Asked) -> Model:
    """The model `--model` or `-m` names, or one from the shape options; given options override either."""
    options, values, given, size = asked.options, asked.values, asked.given, asked.size
    name = values["model"] or (MODELS[options.frame].get(size) if size else None)
    base = named_model(name) if name else _described(asked)
    changes = _changes(asked, base) if name else {}
    if values["untie_embeddings_and_output_weights"]:
        changes["tied"] = False
    if base.positions:
        changes["positions"] = _positions(options, given, base)
    return replace(base, **changes)


def _changes(asked: Asked, base: Model) -> dict[str, Any]:
    """Fields of a named model that options change."""
    options, given = asked.options, asked.given
    changes = _said(asked, "model", given)
    if given & {"swiglu", "hidden_size"} and "ffn_hidden_size" not in given:
        width, gated = changes.get("hidden", base.hidden), changes.get("gated", base.gated)
        changes["ffn"] = replace(options, hidden_size=width, swiglu=gated).ffn
    routing = _said(asked, "experts", given)
    if routing and base.experts is None:
        raise InputError.at(f"--{min(given & {*NAMES['experts']})}", "this model has no experts", found=base.name)
    if base.experts is not None:
        changes |= _expert_changes(options, given, base, base.experts, routing)
    if base.latent is not None:
        changes["latent"] = replace(base.latent, **_said(asked, "latent", given))
    return changes


def _said(asked: Asked, owner: str, given: Set[str]) -> dict[str, Any]:
    """What given options say of somebody's fields."""
    values = asked.values
    return {field: 0 if values[name] is None else values[name] for name, field in NAMES[owner].items() if name in given}


def _expert_changes(
    options: Options, given: Set[str], base: Model, experts: Experts, routing: dict[str, Any]
) -> dict[str, Any]:
    """Experts with what is given; a given width is that of an expert, of dense layers too where they were equal."""
    if "ffn_hidden_size" in given:
        routing["ffn"] = options.ffn
    if "n_shared_expert" in given:
        routing["shared_ffn"] = options.n_shared_expert * routing.get("ffn", experts.ffn)
    changed: dict[str, Any] = {"experts": replace(experts, **routing)}
    return changed if base.ffn == experts.ffn else changed | {"ffn": base.ffn}


def _described(asked: Asked) -> Model:
    """The model AICB's options describe: GPT, with rotary positions and RMS norms where it is DeepSeek or LLaMA."""
    options = asked.options
    gpt, deepseek = options.frame == "Megatron", options.frame == "DeepSeek"
    experts = Experts(options.num_experts, options.moe_router_topk, options.ffn)
    if deepseek:
        shared = options.n_shared_expert * options.ffn
        experts = replace(experts, shared_ffn=shared, dense_layers=options.n_dense_layers)
    told = _said(asked, "model", {*NAMES["model"]})
    told |= {"heads": options.heads, "ffn": options.ffn, "gated": options.swiglu or not gpt}
    return Model(
        options.model_name or options.frame.lower(),
        **told,
        tied=gpt,
        positions=options.max_position_embeddings if gpt else 0,
        norm="layer" if gpt else "rms",
        latent=Latent(**_said(asked, "latent", {*NAMES["latent"]})) if deepseek else None,
        experts=experts if options.moe_enable else None,
    )


def _positions(options: Options, given: Set[str], base: Model) -> int:
    """Rows of a learned position table: as given, otherwise enough for the sequence."""
    rows = options.max_position_embeddings if "max_position_embeddings" in given else base.positions
    if rows >= options.seq_length:
        return rows
    if "max_position_embeddings" not in given:
        return options.seq_length
    message, expected = "the sequence is longer than the position table", f"{options.seq_length} or more"
    raise InputError.at("--max_position_embeddings", message, expected=expected, found=str(rows))


def plan_of(asked: Asked, model: Model) -> Plan:
    """How the options spread the step; InputError where Megatron-LM would refuse."""
    options, values = asked.options, asked.values
    deepspeed = options.frame == "DeepSpeed"
    zero = options.stage if deepspeed else int(options.use_distributed_optimizer)
    if model.experts and options.tp > 1 and not options.enable_sequence_parallel:
        message, option = "experts with tensor parallelism need sequence parallelism", "--enable_sequence_parallel"
        raise InputError.at(option, message, expected=option, found="nothing")
    if model.latent is None and options.tp > 0 and model.key_heads % options.tp:
        message = "heads of keys and values cannot be split over the tensor ranks"
        expected, found = f"a multiple of {options.tp}", str(model.key_heads)
        option = "--num_query_groups" if model.kv_heads else "--num_attention_heads"
        raise InputError.at(option, message, expected=expected, found=found)
    for name, one in (("schedule", ""), ("virtual_pipeline_model_parallel_size", 1)):
        if (values[name] or one) != one and options.pp < 2:
            found = f"pp: {options.pp}"
            raise InputError.at(f"--{name}", "there is no pipeline to schedule", expected="pp: 2 or more", found=found)
    reduced_in = values["gradient_dtype"] or (options.dtype if deepspeed else "float32")
    said = {one.field: values[one.name] for one in OPTIONS if one.owner == "plan" and (values[one.name] or one.least)}
    if deepspeed:
        said |= {"gradients_apart": True, "pad_vocab_to": 1}
    return Plan(
        **{"expert_tp": options.tp, "recompute": "selective" if options.recompute_activations else "none"} | said,
        zero=zero,
        dtype=number_format(options.dtype),
        gradient_bytes=max(2, int(ELEMENT_BYTES[number_format(reduced_in)])),
        load=_load(options, values, model.experts),
        fused_attention=options.use_flash_attn or model.norm == "rms",
        dropout=model.norm == "layer",
    )


def _load(options: Options, values: Mapping[str, Any], experts: Experts | None) -> float:
    """Load of the busiest expert rank."""
    if values["moe_imbalance"] is None:
        return 1.0
    if experts is None or options.ep < 1 or experts.count % options.ep:
        found = "no experts" if experts is None else f"{experts.count} experts on {options.ep} ranks"
        raise InputError.at(_IMBALANCE, "there are no expert ranks of equal size", found=found)
    tokens = options.micro_batch * options.seq_length * experts.top_k * options.ep
    shares = expert_shares(values["moe_imbalance"], experts.count, tokens, values["seed"] or 0)
    return busiest_load(shares, options.ep)


# --- what changes nothing


def ignored(asked: Asked, model: Model, plan: Plan) -> list[str]:
    """Given options without effect: whatever they say model and plan are the same, or nothing of the step is."""
    fields = NAMES["plan"] | _SHARES
    told = fields.keys() & asked.given
    resting = {name for name, _ in idle(model, plan, [fields[name] for name in told])}
    found = {name for name in told if fields[name] in resting}
    for name in asked.given - BESIDE.keys() - ({"moe_enable"} if model.experts else set()):
        value, usual = asked.values[name], asdict(Asked.of(asked.options.frame, asked.size, {}).options).get(name)
        others = (usual, not value if isinstance(value, bool) else value + 1) if isinstance(value, bool | int) else ()
        if others and all(_made(asked, name, other) == _plain(model, plan) for other in others):
            found.add(name)
    return sorted(found)


_SHARES = {
    "use_distributed_optimizer": "zero", "stage": "zero", "recompute_activations": "recompute", "moe_imbalance": "load",
}  # fmt: skip


def _plain(model: Model, plan: Plan) -> tuple[Model, Plan]:
    return replace(model, kv_heads=0) if model.latent else model, plan  # whose keys are no heads'


def _made(asked: Asked, name: str, value: Any) -> tuple[Model, Plan] | None:
    """Model and plan with another value of an option; None where it is refused."""
    given = asked.given if value is not None else asked.given - {name}
    changed: dict[str, Any] = {name: value}
    if name in EXTRA:
        other = replace(asked, extra={**asked.extra, **changed}, given=given)
    else:
        other = replace(asked, options=replace(asked.options, **changed), given=given)
    try:
        model = model_of(other)
        return _plain(model, plan_of(other, model))
    except InputError:
        return None


# --- how unevenly tokens go to experts


Shares = NDArray[np.float64]
_IMBALANCE = "--moe_imbalance"


def expert_shares(kind: str, experts: int, routed_tokens: int, seed: int = 0) -> Shares:
    """Share of the routed tokens that every expert gets; they add up to 1.

    `kind`: "identical"; "uniform" (every token draws its experts with equal chance); "zipf:EXPONENT" (popularity falls
    with rank, the ranks dealt to experts at random); otherwise a file with one count per expert.
    """
    generator = np.random.default_rng(seed)
    if kind == "identical":
        weights = np.ones(experts)
    elif kind == "uniform":
        weights = generator.multinomial(routed_tokens, np.full(experts, 1 / experts)).astype(float)
    elif kind.startswith("zipf"):
        weights = generator.permutation(np.arange(1, experts + 1) ** -_exponent(kind))
    else:
        weights = _counts(kind, experts)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _exponent(kind: str) -> float:
    try:
        exponent = number(kind.partition(":")[2] or 1.0, 0, 100)
    except ValueError:
        exponent = -1.0
    if exponent < 0:
        message, expected = "a Zipf exponent is a number from 0", "for example zipf:1.2"
        raise InputError.at(_IMBALANCE, message, expected=expected, found=kind)
    return exponent


def _counts(path: str, experts: int) -> Shares:
    """Counts of a file, one word each."""
    if not Path(path).exists():
        expected = "identical, uniform, zipf:EXPONENT or a file of counts"
        raise InputError.at(_IMBALANCE, "no such distribution and no such file", expected=expected, found=path)
    words = read_text(path).split()
    whole = len(words) == experts and all(word.isascii() and word.isdecimal() for word in words)
    if not (whole and any(map(int, words))):
        message, expected = f"'{path}' holds no counts of {experts} experts", f"{experts} whole numbers, not all 0"
        raise InputError.at(_IMBALANCE, message, expected=expected, found=str(len(words)))
    return np.array(words, dtype=np.float64)


def busiest_load(shares: Shares, ranks: int) -> float:
    """Load of the busiest of `ranks` that hold equally many neighbouring experts, 1 = the mean.

    >>> busiest_load(np.array([0.5, 0.25, 0.125, 0.125]), 2)
    1.5
    """
    relative = shares * len(shares)
    return round(float(relative.reshape(ranks, -1).mean(axis=1).max()), 9)


def aicb_options(options: Options, model: Model) -> Options:
    """AICB's options for the same model, as far as they can say it."""
    known = asdict(options)
    said: dict[str, Any] = {name: getattr(model, field) for name, field in NAMES["model"].items() if name in known}
    said |= {"num_experts": 1, "moe_router_topk": 1}
    if model.experts:
        said |= {name: getattr(model.experts, field) for name, field in NAMES["experts"].items()}
        said["ffn_hidden_size"] = model.experts.ffn
    return replace(options, model_name=model.name, moe_enable=model.experts is not None, **said)


# --- specifications


def specification(asked: Asked) -> str:
    """The file of what was given; everything else keeps its default."""
    chosen = {name: asked.values[name] for name in sorted(asked.given)}
    if asked.size:
        chosen = {"model_size": asked.size} | chosen
    lines = [f"generator: {asked.options.frame.lower()}", "options:"]
    return "\n".join([*lines, *(f"  {name}: {json.dumps(value)}" for name, value in chosen.items()), ""])


@contextmanager
def asked_in(path: str | Path, npu: str | None = None) -> Iterator[Asked]:
    """What a specification asks for, for accelerator `npu` if one is named; files that it names are found beside it.
    InputError says which key is wrong and where, also for what comes up while the step is made.
    """
    with Problems() as problems:
        document = read(path, problems)
        document.keys(required=("generator", "options"))
        frame, values = _read(document)
    values |= {"gpu_type": npu} if npu else {}
    size = values.pop("model_size", None)
    try:
        yield Asked.of(frame, str(size) if size else None, values)
    except InputError as error:
        raise placed(error, document["options"].items, document["options"]) from error


def _read(document: Node) -> tuple[str, dict[str, object]]:
    """Framework and options; kinds are checked against the options' types."""
    if "generator" not in document or "options" not in document:
        return "", {}
    frame = document["generator"].choice(FRAMES)
    if frame is None:  # whose options nobody knows
        return "", {}
    kinds = {field.name: str(field.type) for field in fields(Options) if field.name != "frame"}
    kinds |= EXTRA | {"model_size": "str"}
    document["options"].keys(optional=tuple(kinds))
    values = {name: _read_value(node, kinds[name]) for name, node in document["options"].mapping() if name in kinds}
    return str(frame), values


def _read_value(node: Node, kind: str) -> object:
    if kind.startswith("bool"):
        return node.flag()
    if kind.startswith("int"):
        return node.integer(-1)
    if kind.startswith("float"):
        return node.number()
    return node.path() if isinstance(node.value, str) and Path(node.value).suffix else str(node.value)
