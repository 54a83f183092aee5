"""Memory of a rank against the published formulas."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.model.memory import activation_bytes_per_layer, advice, in_flight, kv_cache_bytes, stage_memory
from simcore.model.plan import Plan
from simcore.model.presets import model

GPT = model("gpt-22b")


@settings(max_examples=60, deadline=None)
@given(tp=st.sampled_from([1, 2, 4, 8]), batch=st.integers(1, 4), seq=st.sampled_from([1024, 2048]))
def test_activations_of_a_gpt_layer_are_the_papers(tp, batch, seq):
    """Source: Korthikanti et al. 2022, table 2: sbh times 10 + 24/t + 5as/(ht), 34/t + 5as/(ht), 34/t and 2."""
    hidden, heads, unit = GPT.hidden, GPT.heads, seq * batch * GPT.hidden
    plan = Plan(tp, seq, tp=tp, micro_batch=batch, global_batch=batch)
    scores = 5 * heads * seq / (hidden * tp)
    parallel = replace(plan, sequence_parallel=True)
    for chosen, factor in (
        (plan, 10 + 24 / tp + scores),
        (parallel, 34 / tp + scores),
        (replace(parallel, recompute="selective"), 34 / tp),
        (replace(plan, recompute="full"), 2),
    ):
        assert activation_bytes_per_layer(GPT, chosen, 0, flash=False) == pytest.approx(factor * unit, rel=1e-9)


@pytest.mark.parametrize(("zero", "each"), [(0, 16), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_states_take_the_bytes_of_the_zero_paper(zero, each):
    """Source: Rajbhandari et al. 2020, figure 1, with 2-byte gradients and K = 12."""
    plan = Plan(8, 2048, global_batch=8, zero=zero, gradient_bytes=2, pad_vocab_to=1)
    memory = stage_memory(model("llama-2-7b"), plan)
    states = memory.parameters + memory.gradients + memory.optimizer
    assert states == pytest.approx(each * 6738415616, rel=1e-6)


def test_a_stage_holds_as_many_micro_batches_as_its_schedule_says():
    """Source: Narayanan et al. 2021, section 2.2: 1F1B the stages left, interleaved p(1 + (p-1)/(pv)) on the first."""
    assert [in_flight(4, stage, 16) for stage in range(4)] == [4, 3, 2, 1]
    assert in_flight(4, 0, 2) == 2
    assert in_flight(4, 0, 16, schedule="gpipe") == 16
    assert in_flight(4, 0, 16, 2) == 4 * (1 + 3 / (4 * 2))


def test_latent_attention_keeps_a_small_cache():
    """Source: DeepSeek-V2, table 1: 576 elements a token and layer instead of 2 x 128 x 128."""
    assert kv_cache_bytes(model("deepseek-v3"), 1) == 61 * 576 * 2
    assert kv_cache_bytes(model("llama-2-7b"), 1) == 2 * 32 * 4096 * 2


def test_what_does_not_fit_is_said_with_the_amount_and_what_would_help():
    plan = Plan(8, 2048, global_batch=8)
    told = advice(stage_memory(model("gpt-175b"), plan), plan, 80 * 10**9)
    assert "GB too much" in told
    assert "--use_distributed_optimizer" in told
