"""The text on a terminal."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.network.topology.model import Dimension, Topology
from simcore.report.model import Report
from simcore.report.table import Table, breadth, columns, shorten
from simcore.report.tables import layer_total, layers_by_name, per_iteration
from simcore.report.text import EXPOSED_DEFINITIONS, headline, render, use_colour
from simcore.timeline.breakdown import operation_totals
from tests.timelines import report, timelines


def test_the_first_sentence_has_the_time_and_its_shares():
    """2 iterations of (548 + 846) ns compute with 360 ns of exposed communication in all (tests/timelines.py)."""
    sentence = headline(report(scale=1000).to_dict())
    assert sentence == (
        "One iteration takes 1.648 ms (mean of 2; 3.296 ms in all) on 8 NPUs: "
        "89.1% compute (30.9% overlaps communication), 10.9% exposed communication, 0.0% idle."
    )


@given(st.lists(st.integers(0, 99), min_size=4, max_size=4), st.integers(2, 7))
def test_shares_of_a_mean_iteration_add_up_to_its_time(shares, iterations):
    """Also those of a pipeline's stages; rounded one by one, halves would be lost or won."""
    whole = dict(zip(("compute_ns", "overlapped_ns", "exposed_comm_ns", "idle_ns"), shares, strict=True))
    stages = {"schedule": "1f1b", "micro_batches": 1, "chunks": 1, "stages": [{"stage": 0, "ranks": "0", **whole}]}
    told = {"time_ns": sum(shares), "breakdown": whole, "iterations": [{}] * iterations, "pipeline": stages}
    mean = per_iteration(report().to_dict() | told)
    for row in (mean["breakdown"], mean["pipeline"]["stages"][0]):
        assert sum(row[name] for name in whole) == mean["time_ns"]
        assert min(row[name] for name in whole) >= 0


def test_layers_and_the_dimension_that_dominate_are_named():
    text = render(report(scale=1000).to_dict(), width=200)
    assert "Most compute: head (33.0%), mlp <b>& (27.7%)." in text
    assert "Longest waiting: for the all_reduce of Embedding (weight gradient), 83.3% of all waiting." in text
    assert "Busiest: dimension 0 (Ring of 4), 29.1% of the time" in text


def test_both_definitions_of_exposed_communication_are_named():
    document = report().to_dict()
    equal = document | {"exposed_comm_ns": document["breakdown"]["exposed_comm_ns"]}
    differ = document | {"exposed_comm_ns": document["breakdown"]["exposed_comm_ns"] + 1}
    assert all(definition in render(differ, width=300) for definition in EXPOSED_DEFINITIONS)
    assert "all of the time without computing" in render(equal, width=300)


def test_a_table_says_how_many_rows_it_leaves_out():
    many = [f"layer{index}" for index in range(30)]
    assert "18 more layers" in render(report(layers=many).to_dict(), num_rows=12)


@given(timelines(), st.integers(60, 160))
def test_any_report_becomes_text_no_wider_than_asked(timeline, width):
    text = render(Report(timeline, "native", "fair").to_dict(), width=width)
    assert max(map(len, text.splitlines())) <= width


@given(st.integers(1, 500), st.integers(60, 120))
def test_text_is_no_wider_than_asked_however_long_the_names_of_layers_are(length, width):
    text = render(report(scale=1000, layers=("l" * length, "m" * length)).to_dict(), width=width)
    assert max(map(len, text.splitlines())) <= width


def test_control_characters_of_names_do_not_reach_the_terminal():
    assert "\x1b" not in render(report(layers=("evil\x1b[2J", "b")).to_dict())


@given(st.text(st.characters(categories=["L"]), max_size=40), st.integers(5, 30))
def test_shortened_text_keeps_both_ends(text, width):
    short = shorten(text, width)
    assert breadth(short) <= width
    assert short == text or (short[0], short[-1]) == (text[0], text[-1])


def test_columns_are_as_wide_as_their_widest_cell():
    lines = Table("", columns("a", ("b", "b", "d")), [("long name", 1), ("x", 12345)]).text().splitlines()
    assert {len(line) for line in lines} == {len("long name  12345")}


@pytest.mark.parametrize(
    ("terminal", "no_color", "expected"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colour_needs_a_terminal_and_consent(monkeypatch, terminal, no_color, expected):
    monkeypatch.setenv("NO_COLOR", no_color)
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    assert use_colour(stream) is expected


def test_a_graph_shows_its_operations_where_layers_would_be():
    run = report(scale=1000)
    document = run.to_dict() | {"layers": []}
    text = render(document, operations=operation_totals(run.timeline), num_rows=3)
    assert "all_reduce  collective      8" in text
    assert "2 more operations, each taking less, are not shown; events.npz lists all" in text


def test_layers_of_equal_name_share_a_row():
    document = report(scale=1000, layers=("in", *["block"] * 6, "out")).to_dict()
    text = render(document)
    assert "block x6" in text
    assert text.count("block") == text.count("block x6")
    merged = {layer["name"]: layer for layer in layers_by_name(document)}
    assert list(merged) == ["in", "block x6", "out"]
    assert sum(layer_total(layer, "comm_ns") for layer in merged.values()) == sum(
        layer_total(layer, "comm_ns") for layer in document["layers"]
    )


def test_who_ends_last_is_named_where_rank_0_ends_before():
    """Many send to one, which has nothing to do itself."""
    graph = simcore.graph(4)
    for source in range(1, 4):
        graph.send(source, 0, "1 MiB")
    told = render(simcore.run(graph, Topology((Dimension("Ring", 4, 50e9, 500.0),))).to_dict())
    assert "Last to end: rank" in told
    assert "Last to end" not in render(simcore.run("dlrm", "ring64").to_dict())


@given(st.text())
def test_a_name_takes_one_line_of_a_table_whatever_it_holds(name):
    """Names of a trace's nodes are free texts."""
    table = Table("", columns("name", "time_ns"), [(name, 1), ("other", 2)])
    assert len(table.text().splitlines()) == 3


@given(st.lists(st.text("a层é́ｆ", min_size=1), min_size=1, max_size=4), st.integers(20, 60))
def test_columns_stand_below_each_other_however_wide_their_characters_are(names, width):
    """A terminal shows an ideograph as wide as two letters."""
    lines = Table("", columns("layer", "time_ns"), [(name, 1) for name in names]).text(width).splitlines()
    ends = {breadth(line) for line in lines}
    assert len(ends) == 1
    assert max(ends) <= width
