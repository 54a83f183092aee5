"""Laws of the watts that a run's boards draw over time."""

import json
from math import fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import run
from simcore.cli import main
from simcore.compute.accelerators import accelerator
from simcore.compute.power import WAITING
from simcore.report.archive import read_report
from simcore.report.plots import breakdown_figure
from simcore.report.power import power_over_time
from simcore.report.text import render
from simcore.timeline.breakdown import class_figures
from simcore.workload.model import GraphSet, NodeKind
from tests.graphs import graph, node
from tests.runs import runs

H100 = accelerator("H100")


@settings(deadline=None, max_examples=30)
@given(runs(("Ring", "Switch"), [("native", "congested")]), st.sampled_from(["H100", "B200", "A100"]))
def test_boards_draw_between_waiting_and_their_limit_and_energy_is_what_they_do(run, name):
    timeline, limit_w = run.timeline(), accelerator(name).power_w
    row = power_over_time(timeline, name)
    assert all(0.999 * WAITING * limit_w <= watts / timeline.npus <= limit_w for watts in row["watts"])
    bins_ns = [after - before for before, after in zip(row["edges_ns"], row["edges_ns"][1:], strict=False)]
    drawn_j = fsum(watts * ns * 1e-9 for watts, ns in zip(row["watts"], bins_ns, strict=True))
    assert row["energy_j"] == pytest.approx(drawn_j * bool(timeline.time_ns))
    classes = zip(timeline.ranks, class_figures(timeline).compute_ns.tolist(), strict=True)
    busy_s = fsum(len(ranks) * ns * 1e-9 for ranks, ns in classes)
    span_s = timeline.time_ns * 1e-9 * timeline.npus
    assert row["energy_j"] == pytest.approx(limit_w * (WAITING * span_s + (0.93 - WAITING) * busy_s), rel=1e-6)


def test_a_run_that_takes_no_time_takes_no_energy():
    power = run(GraphSet((graph(),), np.zeros(8, np.int32)), "ring8", power="H100").to_dict()["power"]
    assert power["energy_j"] == 0 < power["board_w"]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**5), st.integers(1, 10**5))
def test_a_board_waits_while_its_host_works(host_ns, compute_ns):
    rows = node(NodeKind.COMPUTE, duration_ns=host_ns, on_cpu=True), node(NodeKind.COMPUTE, 0, duration_ns=compute_ns)
    power = run(GraphSet((graph(*rows),), np.zeros(8, np.int32)), "ring8", power="H100").to_dict()["power"]
    spent_w_ns = H100.power_w * (WAITING * host_ns + 0.93 * compute_ns)
    assert power["board_w"] == pytest.approx(spent_w_ns / (host_ns + compute_ns), rel=1e-4)


@pytest.mark.parametrize("straggler", ["1=1.5", "0-3,7=1.1"])
def test_boards_draw_the_same_to_the_last_digit_without_folding(straggler):
    folded, unfolded = (
        run("mlp_model_parallel", "cluster_64_nodes", straggler=straggler, power="H100", no_fold=each).to_dict()
        for each in (False, True)
    )
    assert folded["classes"] < unfolded["classes"]
    assert folded["power"] == unfolded["power"]


def test_energy_beside_the_figures_of_a_mean_iteration_says_that_it_is_that_of_all():
    once, thrice = (render(run("dlrm", "ring8", power="H100", iterations=count).to_dict()) for count in (1, 3))
    assert "in 3 iterations." in " ".join(thrice.split()) and "iterations" not in once


def test_report_page_picture_and_archive_tell_the_same_power(tmp_path, capsys):
    assert (
        main(["run", "--workload", "dlrm", "--topology", "ring8", "--power", "H100", "-o", str(tmp_path / "out")]) == 0
    )
    assert "Power: a H100-SXM-80GB draws 229 W on average" in capsys.readouterr().out
    power = json.loads((tmp_path / "out" / "report.json").read_text())["power"]
    assert power["accelerator"] in (tmp_path / "out" / "timeline.html").read_text()
    report = run("dlrm", "ring8", power="H100")
    assert report.to_dict()["power"] == power
    labels = [axes.get_ylabel() for axes in breakdown_figure(report.to_dict()).axes]
    assert labels[-1] == "kW"
    assert read_report(tmp_path / "out" / "events.npz")["power"] == power


@pytest.mark.parametrize(("name", "said"), [("H10", "H100"), ("TPUv5e", "no power limit is stated")])
def test_boards_whose_power_nobody_states_are_refused(name, said, capsys):
    assert main(["run", "--workload", "dlrm", "--topology", "ring8", "--power", name]) == 2
    assert said in capsys.readouterr().err
