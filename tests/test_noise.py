"""Seeded noise: what a factor depends on, and what the distributions are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.errors import InputError
from simcore.noise import DISTRIBUTIONS, Noise, Spread, parse_jitter

WORDS = st.integers(0, 2**40)


@given(st.sampled_from(sorted(DISTRIBUTIONS)), WORDS, st.lists(WORDS, min_size=1, max_size=9))
def test_a_factor_depends_on_its_place_alone(name, seed, places):
    together = Spread(name, 0.1).factors(seed, 5, places)
    alone = [float(Spread(name, 0.1).factors(seed, 5, [place])[0]) for place in reversed(places)]
    assert together.tolist() == alone[::-1]


@pytest.mark.parametrize("name", sorted(DISTRIBUTIONS))
def test_the_distributions_have_the_mean_and_the_width_that_they_promise(name):
    drawn = Spread(name, 0.05).factors(11, np.arange(200_000))
    mean, deviation = {
        "normal": (1, 0.05),
        "lognormal": (1, 0.05),
        "uniform": (1, 0.05 / 3**0.5),
        "exponential": (1.05, 0.05),
    }[name]
    assert drawn.mean() == pytest.approx(mean, abs=5e-4)
    assert drawn.std() == pytest.approx(deviation, rel=0.01)


def test_seeds_ranks_and_subjects_draw_independently():
    noise = [Noise(seed, Spread("normal", 0.1), Spread("normal", 0.1)) for seed in (1, 2)]
    places = np.arange(4096)
    columns = [
        noise[0].compute_factors(0, places),
        noise[0].compute_factors(1, places),
        noise[1].compute_factors(0, places),
    ]
    columns += [noise[0].link_factors(places), noise[1].link_factors(places)]
    correlations = np.corrcoef(columns) - np.eye(5)
    assert abs(correlations).max() < 0.06


def test_widths_of_zero_are_no_noise():
    assert set(Noise(3, Spread("normal", 0.0)).compute_factors(4, range(9)).tolist()) == {1.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("compute=gauss:0.1", "one of: exponential, lognormal, normal, uniform"),
        ("memory=normal:0.1", "one of: compute, links"),
        ("compute=normal", "a width from 0 to 1"),
        ("compute=normal:nan", "a width from 0 to 1"),
        ("compute=normal:2", "a width from 0 to 1"),
    ],
)
def test_jitter_that_cannot_be_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        parse_jitter((text,), 0)


def run(**options):
    return simcore.run("dlrm", "ring8", **options).to_dict()


def test_runs_of_many_seeds_are_those_of_each_seed():
    jitter = ("compute=lognormal:0.05", "links=normal:0.02")
    many = run(jitter=jitter, seed=4, runs=3)
    each = [run(jitter=jitter, seed=seed)["time_ns"] for seed in (4, 5, 6)]
    assert many["noise"]["times_ns"] == each
    assert many["time_ns"] == each[0]
    assert many["noise"]["time_ns"]["p5"] <= many["noise"]["time_ns"]["mean"] <= many["noise"]["time_ns"]["p95"]
    assert len(set(each)) == 3


@pytest.mark.parametrize("network", ["congested", "congestion-free", "fair"])
@pytest.mark.parametrize("jitter", ["compute=exponential:0.1", "links=uniform:0.1"])
def test_noise_is_the_same_message_by_message(jitter, network):
    both = [run(jitter=(jitter,), seed=1, network=network, exact=exact, iterations=2) for exact in ("", "messages")]
    assert both[0]["time_ns"] == both[1]["time_ns"] != run(network=network, iterations=2)["time_ns"]


def test_a_seed_without_noise_is_warned_of_and_runs_without_noise_are_refused():
    assert any("--seed 3" in text for text in run(seed=3)["warnings"])
    with pytest.raises(InputError, match="--jitter"):
        run(runs=2)


def test_profiles_without_links_of_their_own_refuse_noisy_ones():
    with pytest.raises(InputError, match="astra-sim-2 knows no noisy links"):
        run(jitter=("links=normal:0.1",), profile="astra-sim-2")
    jittery = simcore.run("mlp_model_parallel", "ring8", jitter=("compute=normal:0.1",), profile="astra-sim-2")
    assert jittery.to_dict()["classes"] == 8
