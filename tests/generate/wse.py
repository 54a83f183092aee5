"""Models, systems and the generator's own results that the tests of the wafer-scale generator share."""

import base64
import json
import zlib
from dataclasses import replace
from functools import cache

import numpy as np
from msgspec import structs

from simcore.generate.wse.nodes import Job, exchanges, operations, steps
from simcore.generate.wse.settings import System, parse_layers
from simcore.model.presets import model
from simcore.model.shape import Experts, Latent, Model
from tests.shared import shared

DEEPSEEK, LLAMA = model("deepseek-v3"), model("llama-3-70b")
SMALL = Model(
    "small",
    4,
    64,
    4,
    96,
    100,
    latent=Latent(24, 16, 4, 8, 8),
    experts=Experts(16, 2, 32, shared_ffn=32, dense_layers=1),
)
SMALL_LLAMA = Model("config", 4, 64, 4, 96, 100, 2)


def system(**changes):
    """Eight nodes of four cores: two clusters of four."""
    eight = System(8, (2, 4), (2, 2), 2, 4, 1, 1, 1, 8, 2, "uniform", "alltoall")
    return structs.replace(eight, **changes)


def job(model=SMALL, on=None, layers="all", **changes):
    """A decode job of eight sequences."""
    made = Job(model, on or system(), 8, 20, 1, 0, 2, tuple(parse_layers(layers, model)), phase="decode")
    return structs.replace(made, **changes)


def rows(made, **options):
    """(step, operations of every node) of the first step."""
    step = steps(made)[0]
    routed = exchanges(made, step)
    return step, routed, [list(operations(made, step, node, routed, **options)) for node in range(made.system.nodes)]


@cache
def oracle():
    """The generator's own results."""
    return json.loads(shared("oracle", "wse.json").read_text())


def of_settings(settings):
    """The system of the generator's settings."""
    names = ("num_nodes", "node_grid", "core_grid", "dp_attn", "tp_attn", "sp", "pp", "tp_ffn", "ep")
    names += ("n_redundant_shared_exp", "expert_workload_model", "moe_comm")
    values = [tuple(settings[name]) if name.endswith("grid") else settings[name] for name in names]
    return System(*values)


def of_run(run):
    """The job of one of the generator's runs, with its routing where that is stored."""
    settings = run["config"]
    shape = DEEPSEEK if settings["model"] == "deepseekv3" else LLAMA
    if changes := settings.get("model_overrides"):
        names = {"num_experts_per_tok": "top_k", "n_routed_experts": "count"}
        experts = replace(shape.experts, **{names[key]: value for key, value in changes.items()})
        shape = replace(shape, experts=experts)
    stored = {
        step: {layer: unpacked(array) for layer, array in result["routing"].items()}
        for step, result in run["result"]["iters"].items()
        if "routing" in result
    }
    return Job(
        model=shape,
        system=of_settings(settings["system"]),
        batch=settings["bsz"],
        prefill_len=settings["prefill_len"],
        decode_len=settings["decode_len"],
        speculative=settings.get("spec_dec", 0),
        element_bytes={"fp16": 2, "fp8": 1}[settings["dtype"]],
        layers=tuple(parse_layers(settings["layers"], shape)),
        phase="prefill" if settings["mode"] == "prefill" else "decode",
        routing=stored or None,
    )


def unpacked(stored):
    """A routing array [choice, sequence, position]."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(stored["zlib_b64"])), dtype="<u2")
    return numbers.reshape(stored["shape"]).astype(np.int64)
