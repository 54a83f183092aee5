"""Random models on random wafers through the generator's node level and through a naive model of it."""

import json
from math import prod
from random import Random

import pytest
from msgspec import structs

from simcore.generate.wse.nodes import exchanges, footprint_bytes, steps, totals
from simcore.generate.wse.settings import parse_layers
from simcore.model.huggingface import configuration
from tests.generate.wse import job, of_settings
from tests.oracles import wafer

LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
SHAPE = {"moe_intermediate_size": 33, "moe_layer_freq": 1, "first_k_dense_replace": 1}


def draw(seed):
    """A configuration of a model, settings of a wafer, options: little of it divides."""
    draw = Random(seed)  # noqa: S311 - a seed gives the same case everywhere
    heads = draw.choice((4, 7))
    model = {"num_hidden_layers": draw.choice((1, 3)), "intermediate_size": 101, "vocab_size": draw.choice((100, 1001))}
    model |= {"hidden_size": heads * 16, "num_attention_heads": heads, "num_key_value_heads": draw.choice((1, heads))}
    if draw.random() < 0.7:
        chosen, experts = draw.choice((1, 2, 4)), draw.choice((4, 7, 30))
        counts = {"num_experts_per_tok": chosen, "n_routed_experts": experts, "n_shared_experts": draw.choice((1, 2))}
        model |= LATENT | SHAPE | counts | {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
    else:
        model |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    degrees = {name: draw.choice((1, 2, 3)) for name in ("dp_attn", "tp_attn", "sp")}
    nodes = prod(degrees.values())
    system = degrees | {"num_nodes": nodes, "node_grid": [1, nodes], "core_grid": [2, 2], "tp_ffn": 1, "pp": 1}
    system |= {"ep": nodes, "n_redundant_shared_exp": draw.choice((1, nodes)), "expert_workload_model": "uniform"}
    system["moe_comm"] = draw.choice(("alltoall", "allgather", "multicast"))
    options = {
        "batch": draw.choice((1, 2, 5, 13)),
        "phase": "prefill" if draw.random() < 0.3 else "decode",
        "element_bytes": draw.choice((1, 2)),
    }
    return model, system, options | {"speculative": draw.choice((0, 2)), "prefill_len": 5, "decode_len": 3}


@pytest.mark.parametrize("seed", range(40))
def test_every_total_of_every_node_is_that_of_the_naive_model(seed, tmp_path):
    model, system, options = draw(seed)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model))
    shape = configuration(path)
    layers = tuple(parse_layers("all", shape))
    made = structs.replace(job(shape, of_settings(system)), layers=layers, simplified=False, **options)
    nodes = list(range(made.system.nodes))
    for step in steps(made):
        routed = exchanges(made, step)
        arrays = {f"{name}_moe": each[0].routing.tolist() for name, each in routed.items()}
        asked = {"bsz": made.batch, "bytes": made.element_bytes, "queries": step.queries, "layers": made.layers}
        expected = wafer.totals(model, system, asked, step.context, arrays, prefill=step.prefill)
        assert totals(made, step, nodes, routed) == expected
    asked = {"bsz": made.batch, "bytes": made.element_bytes, "queries": 1, "layers": made.layers}
    resting = wafer.footprint(model, system, asked, made.prefill_len + made.decode_len)
    assert footprint_bytes(made, nodes) == resting
