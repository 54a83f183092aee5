"""Models, systems and the generator's own results that the tests of the wafer-scale generator share."""

import base64
import json
import zlib
from dataclasses import replace
from functools import cache

import numpy as np

from simcore.generate.wse.nodes import Job, exchanges, operations, steps
from simcore.generate.wse.shapes import Experts, Gqa, Mla, Model, System, parse_layers
from tests.shared import shared

DEEPSEEK = Model(7168, 18432, 61, 129280, Mla(128, 1536, 512, 128, 64, 128), Experts(256, 1, 8, 2048, 3, 1))
LLAMA = Model(8192, 28672, 80, 128256, Gqa(64, 8, 128))
SMALL = Model(64, 96, 4, 100, Mla(4, 24, 16, 8, 4, 8), Experts(16, 1, 2, 32, 1, 1))
SMALL_LLAMA = Model(64, 96, 4, 100, Gqa(4, 2, 16))


def system(**changes):
    """Eight nodes of four cores: two clusters of four."""
    eight = System(8, (2, 4), (2, 2), 2, 4, 1, 1, 1, 8, 2, "uniform", "alltoall")
    return replace(eight, **changes)


def job(model=SMALL, on=None, layers="all", **changes):
    """A decode job of eight sequences."""
    made = Job(model, on or system(), 8, 20, 1, 0, 2, tuple(parse_layers(layers, model)), prefill=False)
    return replace(made, **changes)


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
    model = DEEPSEEK if settings["model"] == "deepseekv3" else LLAMA
    if changes := settings.get("model_overrides"):
        names = {"num_experts_per_tok": "top_k", "n_routed_experts": "routed"}
        experts = replace(model.experts, **{names[key]: value for key, value in changes.items()})
        model = replace(model, experts=experts)
    stored = {
        step: {layer: unpacked(array) for layer, array in result["routing"].items()}
        for step, result in run["result"]["iters"].items()
        if "routing" in result
    }
    return Job(
        model=model,
        system=of_settings(settings["system"]),
        batch=settings["bsz"],
        prefill_len=settings["prefill_len"],
        decode_len=settings["decode_len"],
        speculative=settings.get("spec_dec", 0),
        element_bytes={"fp16": 2, "fp8": 1}[settings["dtype"]],
        layers=tuple(parse_layers(settings["layers"], model)),
        prefill=settings["mode"] == "prefill",
        routing=stored or None,
    )


def unpacked(stored):
    """A routing array [choice, sequence, position]."""
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(stored["zlib_b64"])), dtype="<u2")
    return numbers.reshape(stored["shape"]).astype(np.int64)
