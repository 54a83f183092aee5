"""The report document: schema, laws of its figures, tables."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given

from simcore.errors import InputError
from simcore.report.document import encode
from simcore.report.model import Report
from simcore.report.tables import TABLES
from tests.timelines import report, timelines

KEYS = {
    "schema", "version", "profile", "network", "time_ns", "iterations", "npus", "classes", "compute_ns",
    "exposed_comm_ns", "breakdown", "layers", "ranks", "dims", "links", "warnings", "inputs",
}  # fmt: skip


def numbers(value):
    if isinstance(value, dict):
        return [n for inner in value.values() for n in numbers(inner)]
    if isinstance(value, list):
        return [n for inner in value for n in numbers(inner)]
    return [value] if isinstance(value, int | float) else []


def expand(ranks):
    for part in ranks.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def test_the_document_has_exactly_the_keys_of_the_contract():
    document = report().to_dict()
    assert set(document) == KEYS
    assert set(document["layers"][0]) == {"index", "name", "forward", "input_grad", "weight_grad"}
    assert set(document["layers"][0]["forward"]) == {"compute_ns", "comm_ns", "exposed_ns", "collective", "bytes"}


@given(timelines())
def test_json_is_sorted_finite_and_reads_back(timeline):
    text = Report(timeline, "native", "fair").to_json()
    document = json.loads(text)
    assert text == json.dumps(document, sort_keys=True, indent=1) + "\n"
    assert all(math.isfinite(number) for number in numbers(document))


@given(timelines())
def test_rows_of_ranks_name_every_npu_once_and_differ(timeline):
    rows = Report(timeline, "native", "fair").to_dict()["ranks"]
    named = [rank for row in rows for rank in expand(row["ranks"])]
    assert sorted(named) == list(range(timeline.npus))
    figures = [tuple(value for key, value in row.items() if key != "ranks") for row in rows]
    assert len(set(figures)) == len(figures)


def test_folded_and_unfolded_reports_differ_in_classes_only():
    folded, unfolded = report(classes=1).to_dict(), report(classes=8).to_dict()
    assert (folded.pop("classes"), unfolded.pop("classes")) == (1, 8)
    assert folded == unfolded


def test_nan_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        encode({"total_us": math.nan})


def helped():
    return replace(report(), helps=({"change": "faster", "time_ns": 5, "saved_ns": 1},))


@pytest.mark.parametrize("table", TABLES)
def test_every_table_becomes_a_frame_with_named_columns(table):
    frame = helped().to_pandas(table)
    assert len(frame) > 0
    assert all(isinstance(name, str) for name in frame.columns)


@pytest.mark.parametrize("table", TABLES)
def test_polars_gets_the_same_tables(table):
    pytest.importorskip("polars", reason="needs polars (the extra tables)")
    assert helped().to_polars(table).shape == helped().to_pandas(table).shape


def test_an_unknown_table_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'layers'"):
        report().to_pandas("layer")


def test_a_notebook_shows_escaped_names():
    shown = report()._repr_html_()
    assert "mlp &lt;b&gt;&amp;" in shown
    assert "<b>&" not in shown
    assert "What would help" in helped()._repr_html_()


def test_a_notebook_shows_a_large_run_in_a_few_rows():
    shown = report(layers=[f"layer{index}" for index in range(500)])._repr_html_()
    assert shown.count("<tr>") < 20
    assert "485 more layers" in shown
