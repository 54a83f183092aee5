"""A choice of a plan is without effect exactly where no value of it changes the answer."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.cost.answer import Answer
from simcore.cost.systems import CLUSTERS
from simcore.cost.words import CHOICES
from simcore.errors import InputError
from simcore.model.effects import idle
from simcore.model.plan import Plan, check
from simcore.model.presets import model as named
from simcore.model.shape import Experts, Latent, Model

DENSE = Model("dense", 5, 1024, 8, 4096, 32000, kv_heads=8)
MODELS = [
    DENSE,
    replace(DENSE, gated=False, norm="layer", positions=1024, linear_bias=True),
    replace(DENSE, experts=Experts(8, 2, 1024)),
    replace(DENSE, experts=Experts(8, 2, 1024, 1024, 2), latent=Latent(256, 512, 64, 128, 128)),
    replace(DENSE, layers=3, encoder_layers=2, relative_positions=32),
]
VALUES: dict[str, list[Any]] = {
    "expert_tp": [1, 2],
    "capacity": [1.5],
    "load": [1.5],
    "encoder_seq": [256],
    "sequence_parallel": [True],
    "virtual_stages": [2],
    "zero": [1, 2, 3],
    "overlap": [True],
    "overlap_pipeline": [True],
    "scatter_pipeline": [True],
    "gradients_apart": [True],
    "by_matrix": [True],
    "recompute_layers": [1, 2],
    "lora_rank": [8],
    "offload_layers": [1, 2],
    "fused_attention": [False],
    "dropout": [True],
    **{name: CHOICES[name] for name in ("context", "schedule", "recompute", "recompute_method")},
    **{name: [(one,) for one in CHOICES[name]] for name in ("recompute_modules", "lora_modules", "frozen", "offload")},
    "attention_dtype": ["fp8"],
    "parameter_dtype": ["fp8"],
}


@st.composite
def plans(draw: Any) -> tuple[Model, Plan]:
    """Some plan, with what other choices need."""
    model, (tp, cp, pp, dp) = draw(st.sampled_from(MODELS)), (draw(st.sampled_from([1, 2])) for _ in range(4))
    usual = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "expert_tp": draw(st.sampled_from([1, tp]))}
    if model.experts and dp * cp % 2 == 0:
        usual["ep"] = draw(st.sampled_from([1, 2]))
    more = draw(
        st.sampled_from(
            [
                *(
                    {},
                    {},
                    {"capacity": 1.25},
                    {"zero": 1},
                    {"zero": 3},
                    {"lora_rank": 8},
                    {"dtype": "fp8"},
                    {"fused_attention": False},
                ),
                *({"recompute": "full"}, {"recompute": "full", "recompute_layers": 2}, {"offload": ("activations",)}),
                *(
                    {"recompute": "selective", "fused_attention": False},
                    {"recompute": "selective"},
                    {"gradient_bytes": 2},
                    {"capacity": 1.25},
                ),
            ]
        )
    )
    plan = Plan.of(
        1024, 8 * dp, sequence_parallel=tp > 1 and (bool(model.experts) or draw(st.booleans())), **usual, **more
    )
    check(model, plan)
    return model, plan


def told(model: Model, plan: Plan) -> object:
    """All that is answered."""
    check(model, plan)
    answer = Answer(model, plan, CLUSTERS["h100"])
    return (
        answer.prediction,
        answer.memory,
        answer.mfu,
        answer.power(),
        [(str(one), one.known) for one in answer.kernels],
    )


@settings(max_examples=150, deadline=None)
@given(plans(), st.sampled_from(sorted(VALUES)))
def test_a_choice_is_idle_exactly_where_nothing_changes(asked, name):
    """Every value against the plan that does not choose."""
    model, plan = asked
    assume(getattr(plan, name) == getattr(Plan, name))
    without = replace(plan, **{name: ()}) if name.endswith("modules") else plan  # module by module
    base, acting, resting = told(model, without), [], []
    for value in VALUES[name]:
        chosen = replace(plan, **{name: value})
        try:
            found = told(model, chosen)
        except InputError:
            continue
        (resting if [*idle(model, chosen, [name])] else acting).append((value, found != base))
    if name not in ("schedule", "virtual_stages", "zero"):  # one stage or replica has none, though figures differ
        assert not any(changed for _, changed in resting)
    stated = {getattr(Plan, name), "1f1b", "interleaved"}  # says what is so without it
    every = {value for value, changed in acting if not changed and value not in stated}
    assert every <= ({1} if name == "expert_tp" and plan.tp == 1 else set())


def test_the_load_of_the_busiest_is_refused_where_all_experts_are_padded_alike():
    busy = simcore.predict("mixtral-8x7b", "h100", 8, 2048, ep=8, load=1.5)
    assert busy.step_s > simcore.predict("mixtral-8x7b", "h100", 8, 2048, ep=8).step_s
    with pytest.raises(InputError, match="--load: error: has no effect here\n  expected: no --capacity"):
        simcore.predict("mixtral-8x7b", "h100", 8, 2048, ep=8, capacity=1.25, load=1.5)


@given(st.sampled_from([1, 2, 4, 8]), st.floats(1, 16))
@settings(max_examples=20, deadline=None)
def test_a_rank_has_no_more_tokens_than_all_of_them(ranks, load):
    plan = Plan.of(1024, 8, dp=8, ep=ranks, load=load)
    if 1 < ranks < load:
        with pytest.raises(InputError, match=f"all tokens are {ranks} times the mean"):
            check(MODELS[2], plan)
    else:
        check(MODELS[2], plan)
        assert plan.crowded <= ranks


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"recompute": "selective", "recompute_modules": ("moe", "layernorm")}, "--recompute-modules: error: has no"),
        ({"recompute_layers": 3}, "--recompute-layers: error: has no effect here\n  expected: --recompute full"),
        ({"frozen": ("embedding",), "lora_rank": 8}, "--frozen: error: has no effect here"),
        ({"attention_dtype": "fp8", "fused_attention": False}, "--attention-dtype: error: has no effect here"),
    ],
)
def test_predictions_refuse_what_contradicts_model_or_plan(words, told):
    with pytest.raises(InputError, match=told):
        simcore.predict("llama-3-8b", "h100", 8, 2048, **words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--context ring", "--context has no effect here, it needs --cp 2 or more"),
        ("--overlap --tp 8", "--overlap has no effect here, it needs several replicas, and --zero 2 or less"),
        ("--zero 1 --tp 8", "--zero has no effect here, it needs several replicas"),
        ("--overlap-pipeline", "--overlap-pipeline has no effect here, it needs --pp 2 or more"),
        ("--scatter-pipeline --pp 2", "--scatter-pipeline has no effect here, it needs --pp and --tp 2 or more"),
        ("--recompute full --recompute-layers 33", "it needs no more layers than the 32 of the deepest chunk"),
        ("--recompute selective", "--recompute has no effect here, it needs --recompute-modules"),
        ("--attention-dtype fp8", "--attention-dtype has no effect here, it needs --dtype fp8 or less"),
        ("--sequence-parallel", "--sequence-parallel has no effect here, it needs --tp 2 or more"),
        ("--sequence-parallel --tp 2", ""),
    ],
)
def test_predictions_tell_what_would_act_if_more_were_cut(words, told, capsys):
    """As a script has it that goes through the degrees."""
    assert main(f"predict --model llama-3-8b --cluster h100 --accelerators 8 --seq 2048 {words}".split()) == 0
    error = capsys.readouterr().err
    assert f"warning: {words.split()[0]}" in error if told else not error
    assert told in error


def test_all_that_has_no_effect_is_told_at_once_and_what_is_off_is_not_chosen():
    model, plan = named("llama-3-8b"), Plan.of(1024, 8, context="ring", overlap=True)
    assert [name for name, _ in idle(model, plan, ["context", "overlap", "zero", "sequence_parallel", "dp"])] == [
        "context",
        "overlap",
    ]
