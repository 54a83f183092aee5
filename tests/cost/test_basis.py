"""What predictions rest on, and what they draw."""

from dataclasses import replace

import pytest

import simcore
from simcore.cli import main
from simcore.compute.accelerators import accelerator
from simcore.cost.answer import Answer
from simcore.cost.systems import CLUSTERS
from simcore.model.plan import Plan
from simcore.model.presets import model
from simcore.model.steps import Part

WORDS = {"tp": 2, "pp": 2, "global_batch": 16, "zero": 1}


@pytest.fixture(scope="module")
def answer():
    return simcore.predict("llama-3-8b", "h100", 16, 4096, **WORDS)


def test_the_kernels_that_decide_are_the_longest_and_say_where_their_times_come_from(answer):
    shares = [share for _, share in answer.deciding(1000)]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    first = answer.sources()["deciding"][0]
    assert first["table"] == "aic_h100_gemm"
    longer = answer.cluster.software.kernels.products  # and the power limit of a long run
    assert longer < first["over_short_run"] < 1.17 * longer
    assert first["share"] == shares[0]
    assert 0 <= first["distance"] < 1


def test_most_of_a_known_models_time_on_a_known_device_is_measured_or_near_it(answer):
    found = answer.sources()
    assert found["measured_share"] + found["interpolated_share"] > 0.8
    assert found["mean_distance"] < 1


def test_a_board_draws_between_waiting_and_its_limit_and_energy_is_power_times_time(answer):
    power, device = answer.power(), accelerator("H100")
    assert 0.22 * device.power_w < power["board_w"] < device.power_w
    assert power["board_j"] == pytest.approx(power["board_w"] * answer.step_s)
    assert power["tokens_per_j"] == pytest.approx(answer.tokens_per_s / power["board_w"])


def test_a_device_without_a_power_limit_has_no_energy(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("accelerator: TPUv5p\nfabric: tpu-v5p\n", encoding="utf-8")
    assert simcore.predict("llama-3-8b", str(path), 16, 2048, **WORDS).power() is None


def test_the_first_screen_names_three_kernels_and_the_watts(capsys):
    step = ("predict", "--model", "llama-3-8b", "--cluster", "h100", "--accelerators", "16", "--seq", "4096")
    assert main([*step, "--tp", "2", "--global-batch", "16"]) == 0
    told = capsys.readouterr().out
    assert told.count("aic_h100_") >= 3
    assert "tokens/J" in told
    assert "Times rest on" in told


def test_equal_kernels_of_layers_of_several_kinds_are_one():
    """Layers with a window and without differ in attention only."""
    shape = replace(model("llama-3-8b"), layers=4, window=512, full_every=2)
    kernels = Answer(shape, Plan.of(1024, 1), CLUSTERS["h100"]).kernels
    told = [(one.kernel, one.phase) for one in kernels]
    assert len(told) == len(set(told))
    counts = {part: {one.count for one in kernels if one.kernel.part is part} for part in Part}
    assert counts[Part.MLP_IN] == {4} and counts[Part.ATTENTION_CORE] == {2}
