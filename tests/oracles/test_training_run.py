"""Random options through `simcore cost` and through naive models of the two scripts that it restates."""

import json
from random import Random

import pytest
from click.testing import CliRunner

from simcore.cli import cli
from simcore.errors import InputError
from tests.oracles.packets import RefusalError
from tests.oracles.training_run import CHIPS, GRID, simple, transformer

FLAGS = ("use_glu", "no_multi_query_attn", "activation_checkpointing", "consecutive_attn_and_ffn")


def draw_transformer(seed):
    draw = Random(seed)  # noqa: S311 - a seed gives the same case everywhere
    grid = {axis: draw.choice((1, 1, 2, 3, 4, 8)) for axis in GRID}
    experts, inner, outer = grid["p_exp"] * draw.choice((1, 2)), grid["p_tensor_int"], grid["p_tensor_ext"]
    found = grid | {
        "num_experts": experts,
        "seq_len": experts * grid["p_seq"] * outer * draw.choice((1, 7, 512)),
        "d_model": outer * draw.choice((64, 1024, 1536)),
        "num_layers": grid["p_pipe"] * draw.choice((1, 5)),
        "batch_size": grid["p_data"] * grid["p_pipe"] * draw.choice((1, 6, 16)),
        "dataset_size": draw.choice((123456789, 1.3e13)),
        "d_head": draw.choice((1, 3, 64)),
    }
    found |= draw.choice(({}, {"num_heads": inner * draw.choice((1, 3))}, {"total_attn_width_ratio": 1.5}))
    found |= draw.choice(({}, {"d_ffn": inner * draw.choice((7, 2048))}, {"d_ffn_ratio": 3}))
    return found | {flag: True for flag in (*FLAGS, "skip_efficiency_check") if draw.random() < 0.7}


def draw_simple(seed):
    draw = Random(seed)  # noqa: S311 - a seed gives the same case everywhere
    experts, pp, stages = draw.choice((1, 1, 4, 6)), draw.choice((1, 2, 5)), draw.choice((1, 1, 3))
    dp, tp, tp2 = draw.choice((1, 3)), draw.choice((1, 1, 5)), draw.choice((1, 2))
    return {
        "n_experts": experts, "n_routed_experts": draw.choice((1, 1, experts)), "pp": pp, "dp": dp, "tp": tp,
        "tp2": tp2, "pipeline_interleaving": stages, "n_layers": pp * stages * draw.choice((1, 3)),
        "d_model": tp2 * draw.choice((64, 999)), "d_internal_ratio": draw.choice((1, 5)),
        "microbatch_size": dp * draw.choice((1, 2)), "batch_size": dp * draw.choice((2, 14)),
        "seq_len": experts * draw.choice((1, 1000)), "precision_bits": draw.choice((4, 16)),
        "chip_type": draw.choice(list(CHIPS)[:3]), "dataset_size": draw.choice((1e6, 3e11)),
    }  # fmt: skip


def answer(command, options):
    """The command's document, None where it refuses."""
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))[: 1 + (value is not True)]]
    done = CliRunner().invoke(cli, ["cost", *command, *words, "--json"])
    if done.exit_code and not isinstance(done.exception, InputError):
        raise done.exception
    return None if done.exit_code else json.loads(done.stdout)


def of_model(model, *args):
    try:
        return model(*args)
    except RefusalError:
        return None


@pytest.mark.parametrize("seed", range(60))
def test_every_total_is_that_of_the_naive_model(seed):
    options = draw_transformer(seed)
    expected, found = of_model(transformer, options), answer(["transformer"], options)
    assert (expected is None) == (found is None)
    if found:
        (figures, sizes), counts = expected, {"flop": "FLOP", "tx": "Tx", "rx": "Rx"}
        assert found.get("microbatch_sizes") == sizes
        for key, value in figures.items():
            assert found[counts.get(key, key)] == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("variant", ["readme", "head"])
@pytest.mark.parametrize("seed", range(30))
def test_every_time_is_that_of_the_naive_model(seed, variant):
    options = draw_simple(seed)
    expected = of_model(simple, options, variant)
    found = answer(["simple", "--variant", variant], options)
    assert (expected is None) == (found is None)
    if found:
        assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9)
