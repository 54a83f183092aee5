"""The roofline model of a training run: the source's own figures, and laws."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simcore.cost.closed.simple import CHIPS, VARIANTS, Chip, Setup, chip, evaluate
from simcore.errors import InputError

# The second example of document 004: 23,040 A100.
SETUP = Setup(120, 12288, 5, 16, 2, None, 30720, 48, 2048, 8, pp=15, interleaving=8, dp=12, tp=8)
degrees = st.sampled_from([1, 2, 4])
setups = st.builds(
    lambda **spread: Setup(16, 4096, experts=4, batch_size=256, microbatch_size=16, **spread),
    routed=st.sampled_from([1, 2, 4]),
    pp=degrees,
    interleaving=st.sampled_from([1, 2]),
    dp=degrees,
    tp=degrees,
    tp2=degrees,
)


@pytest.mark.parametrize(
    ("variant", "batch_s", "utilization", "days"),
    [
        ("readme", 9.54730303172923, 0.996616996393282, 101.8378990051118),
        ("head", 15.907947705895387, 0.5981289759716937, 169.6847755295508),
    ],
)
def test_the_documents_example_is_met_in_both_variants(variant, batch_s, utilization, days):
    # davidsj/ml_par_sim @47632d9 and @d9c1248, as run
    run = evaluate(SETUP, chip("A100_40GB", variant), variant)
    assert (run.batch_time, run.util, run.run_time_days) == pytest.approx((batch_s, utilization, days), rel=1e-12)
    assert (run.p, run.N, run.pipeline_bubble_layers) == (23040, 362387865600, 14)


@given(setups, st.sampled_from(VARIANTS))
def test_a_batch_is_its_three_parts_and_never_beats_the_hardware(setup, variant):
    assume(setup.pp > 1 or setup.interleaving == 1)
    run = evaluate(setup, CHIPS[variant]["H100"], variant)
    parts = run.pipeline_bubble_time + run.pipeline_full_time + run.gradient_reduction_time
    assert run.batch_time == pytest.approx(parts)
    assert 0 < run.util <= 1 + 1e-12


@given(setups)
def test_on_a_perfect_network_both_variants_agree(setup):
    assume(setup.pp > 1 or setup.interleaving == 1)
    perfect = Chip(1e15, 1e12, 1e30)
    readme, head = (evaluate(setup, perfect, variant, 1.0) for variant in VARIANTS)
    assert head.batch_time == pytest.approx(readme.batch_time)


@given(setups)
def test_interleaving_shrinks_the_bubble_and_nothing_else(setup):
    assume(setup.pp > 1)
    plain = evaluate(replace(setup, interleaving=1), CHIPS["readme"]["H100"], "readme")
    interleaved = evaluate(replace(setup, interleaving=2), CHIPS["readme"]["H100"], "readme")
    assert interleaved.pipeline_bubble_layers * 2 == plain.pipeline_bubble_layers
    assert interleaved.pipeline_full_time == plain.pipeline_full_time


def test_the_pod_has_the_network_of_its_variant():
    networks = [chip("H100_x64_pod", variant).network_bytes_per_s for variant in VARIANTS]
    assert networks == [125e8, 1e9]


def test_everything_that_does_not_divide_is_named_at_once():
    with pytest.raises(InputError) as caught:
        evaluate(replace(SETUP, tp=7, tp2=5, microbatch_size=49, interleaving=7), CHIPS["readme"]["H100"], "readme")
    named = {problem.field for problem in caught.value.problems}
    assert named == {"microbatch_size", "dp", "pp", "tp", "tp2"}
    with pytest.raises(InputError, match="pipeline_interleaving"):
        evaluate(Setup(24, 2048, interleaving=2), CHIPS["readme"]["H100"], "readme")


@pytest.mark.parametrize(("name", "variant"), [("H1000", "head"), ("RTX4090", "readme")])
def test_an_unknown_chip_is_refused(name, variant):
    with pytest.raises(InputError, match="--chip_type"):
        chip(name, variant)
