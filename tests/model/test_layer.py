import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.compute.operations import Shard, Model, layer_operations, parameters
from simcore.workload.model import PhaseName

GPT3 = Model(96, 12288, 96, 49152, 51200, 2048, attention="unfused")
LLAMA = Model(126, 16384, 128, 53248, 128256, 8192, kv_heads=8, gated=True, tied=False, learned_positions=False)
MIXTRAL = Model(
    32,
    4096,
    32,
    14336,
    32000,
    4096,
    8,
    gated=True,
    tied=False,
    learned_positions=False,
    experts=8,
    top_k=2,
    expert_ffn=14336,
)


def flops(model, shard, phase):
    return sum(operation.flops for operation in layer_operations(model, shard, phase))


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        (GPT3, 174.6),  # Megatron-LM, SC'21, table 1
        (LLAMA, 405.85),  # The Llama 3 Herd of Models, section 3.2
        (MIXTRAL, 46.7),  # Mixtral of Experts, section 2
    ],
)
def test_parameter_counts_equal_the_published_ones(model, billions):
    assert parameters(model) / 1e9 == pytest.approx(billions, rel=0.002)


def test_a_layer_costs_what_the_megatron_paper_says():
    """24 B s h^2 (1 + s / 6h) forward (Narayanan et al. 2021, appendix), all scores computed."""
    forward = flops(GPT3, Shard(4), PhaseName.FORWARD)
    assert forward == pytest.approx(24 * 4 * 2048 * 12288**2 * (1 + 2048 / (6 * 12288)), rel=1e-9)


@given(micro=st.integers(1, 8), tp=st.sampled_from([1, 2, 4, 8]))
def test_both_gradients_together_are_twice_the_forward(micro, tp):
    shard = Shard(micro, tp)
    back = flops(GPT3, shard, PhaseName.INPUT_GRAD) + flops(GPT3, shard, PhaseName.WEIGHT_GRAD)
    assert back == pytest.approx(2 * flops(GPT3, shard, PhaseName.FORWARD))


@given(tp=st.sampled_from([2, 4, 8]), phase=st.sampled_from(list(PhaseName)))
def test_tensor_ranks_share_the_arithmetic_evenly(tp, phase):
    assert flops(GPT3, Shard(2, tp), phase) * tp == pytest.approx(flops(GPT3, Shard(2), phase))


def test_sequence_parallelism_shares_the_memory_passes_too():
    def moved(shard):
        return sum(one.memory_bytes for one in layer_operations(GPT3, shard, PhaseName.FORWARD) if one.kind == "memory")

    assert moved(Shard(1, 8, sequence_parallel=True)) < moved(Shard(1, 8))


def test_fused_causal_attention_skips_half_the_scores_and_a_window_more():
    def attention(**changes):
        model = Model(1, 4096, 32, 16384, 32000, 4096, **changes)
        return sum(one.flops for one in layer_operations(model, Shard(), PhaseName.FORWARD) if one.kind == "attention")

    assert attention() == 2 * 4096 * 4096 * 4096
    assert attention(window=2048) == 0.75 * attention()
