"""Lumos's extrapolations: what the trace tells is what generating the other step would tell; rows show both sides."""

import json
from functools import cache

import pytest

from simcore.cli import main
from simcore.cost.published import validate
from simcore.cost.published.lumos import Extrapolation, extrapolations


def test_the_measurements_contradict_each_other():
    measured = {row.id: row.measured for document in validate.default_documents() for row in extrapolations(document)}
    assert measured["lumos-f7-2x8x4-replay"] > 1.4 * measured["lumos-f7-2x8x8-replay"]
    assert measured["lumos-f7-2x4x16-replay"] > 1.5 * measured["lumos-f7-2x4x8-replay"]


def test_a_prediction_is_the_sum_of_its_parts_and_follows_the_cluster():
    one = Extrapolation((48, 6144, 12288, 48), 4, 4).explained()
    assert one.step_s == pytest.approx(sum(one.parts.values()))
    assert set(one.parts) == {"compute", "overlapped", "exposed", "bubble", "losses", "other"}


def test_the_command_prints_both_sides(capsys, monkeypatch):
    monkeypatch.setattr(validate, "score", cache(validate.score))
    assert main(["validate", "lumos_replay", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["suites"][0]["rows"]
    assert all({"measured_s", "predicted_s", "peer_s", "error"} <= set(row) for row in rows)
    assert main(["validate", "lumos_replay", "--rows"]) == 0
    assert "peer 0.802 s +0.6%" in capsys.readouterr().out
