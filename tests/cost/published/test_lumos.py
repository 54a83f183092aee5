"""Lumos's extrapolations: what the trace tells is what generating the other step would tell; rows show both sides."""

import json
from pathlib import Path

import pytest

from simcore.cli import main
from simcore.cost.published.lumos import Extrapolation, extrapolations
from simcore.cost.published.validate import default_documents

ROWS = {
    f"lumos-f7-{degrees}-replay"
    for degrees in ("2x2x8", "2x2x16", "2x2x32", "2x4x4", "2x8x4", "2x4x8", "2x8x8", "2x4x16")
}
# Faster with half the replicas, and slower with twice as many than at any other step: no configuration says why.
UNEXPLAINED = {"lumos-f7-2x8x4-replay", "lumos-f7-2x4x16-replay"}


@pytest.fixture
def scored(scores):
    return scores["lumos_replay"]


def test_every_row_has_a_measurement_and_lumoss_own_prediction(scored):
    assert {row.id for row in scored.rows} == ROWS
    assert sum(abs(row.peer / row.measured - 1) for row in scored.rows) / len(ROWS) == pytest.approx(0.038, abs=0.001)


def test_all_rows_but_those_that_contradict_each_other_are_met_within_a_tenth(scored):
    """A guard, set after seeing: nothing is published for anybody but Lumos."""
    errors = {row.id: error for row, error in zip(scored.rows, scored.errors, strict=True)}
    assert all(abs(error) < 0.1 for name, error in errors.items() if name not in UNEXPLAINED)


def test_the_page_has_every_row_with_both_errors(scored):
    page = (Path(__file__).parents[3] / "docs" / "validation.md").read_text()
    for row, error in zip(scored.rows, scored.errors, strict=True):
        lumos = f"{row.peer * 1e3:.0f}, {row.peer / row.measured - 1:+.1%}"
        ours = f"{row.measured * (1 + error) * 1e3:.0f}, {error:+.1%}"
        name = row.id.removeprefix("lumos-f7-").removesuffix("-replay")
        assert f"| {name} | {row.measured * 1e3:.0f} | {lumos} | {ours} |" in page


def test_the_measurements_contradict_each_other():
    measured = {row.id: row.measured for document in default_documents() for row in extrapolations(document)}
    assert measured["lumos-f7-2x8x4-replay"] > 1.4 * measured["lumos-f7-2x8x8-replay"]
    assert measured["lumos-f7-2x4x16-replay"] > 1.5 * measured["lumos-f7-2x4x8-replay"]


def test_a_prediction_is_the_sum_of_its_parts_and_follows_the_cluster():
    one = Extrapolation((48, 6144, 12288, 48), 4, 4).explained()
    assert one.step_s == pytest.approx(sum(one.parts.values()))
    assert set(one.parts) == {"compute", "overlapped", "exposed", "bubble", "losses", "other"}


def test_the_command_prints_both_sides(capsys):
    assert main(["validate", "lumos_replay", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["suites"][0]["rows"]
    assert all({"measured_s", "predicted_s", "peer_s", "error"} <= set(row) for row in rows)
    assert main(["validate", "lumos_replay", "--rows"]) == 0
    assert "peer 0.802 s +0.6%" in capsys.readouterr().out
