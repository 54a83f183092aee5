import json
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.cli import main
from simcore.report.plots import image
from simcore.sweep.pictures import front, scaling_figure, study_figure
from simcore.sweep.report import Results, read_results, render, results_csv
from simcore.sweep.sweep import RESULTS, SCHEMA, STUDY


def row(key, options, time_ns):
    """A run that computes all the time; a failed one without a time."""
    shares = {"overlapped_ns": 0, "exposed_comm_ns": 0, "idle_ns": 0}
    figures = {"npus": 8, "time_ns": time_ns, "compute_ns": time_ns, **shares} if time_ns else {}
    error = "" if time_ns else "net.yaml:1:2: error: no\n  found: x"
    return {"key": key, "options": options, "inputs": {}, "version": "1", "figures": figures, "error": error}


ROWS = [
    row("a", {"topology": "ring8", "iterations": 1}, 4000),
    row("b", {"topology": "ring8", "iterations": 2}, 8000),
    row("c", {"topology": "mesh", "iterations": 1}, 2000),
    row("d", {"topology": "mesh"}, 0),
]
GOLDEN = """\
4 runs, 1 failed, 1 not done yet. Shortest: 2 us with topology = mesh,
iterations = 1; the longest takes 4 times as long.

topology  iterations    time  compute  overlapped  exposed comm  idle
mesh      1             2 us     2 us        0 ns          0 ns  0 ns
ring8     1             4 us     4 us        0 ns          0 ns  0 ns
ring8     2             8 us     8 us        0 ns          0 ns  0 ns
mesh      -           failed        -           -             -     -

failed: topology = mesh
  net.yaml:1:2: error: no
"""
CSV = """\
topology,iterations,npus,time_ns,compute_ns,overlapped_ns,exposed_comm_ns,idle_ns,network_usd,error,key
ring8,1,8,4000,4000,0,0,0,,,a
ring8,2,8,8000,8000,0,0,0,,,b
mesh,1,8,2000,2000,0,0,0,,,c
mesh,,,,,,,,,"net.yaml:1:2: error: no
  found: x",d
"""


@pytest.fixture
def folder(tmp_path):
    """A sweep that was ended while it wrote the fifth row, the rows in another order than the study's."""
    lines = [json.dumps(one) for one in (ROWS[2], ROWS[0], ROWS[3], ROWS[1])]
    (tmp_path / RESULTS).write_text("\n".join(lines) + '\n{"key": "e", "opt')
    document = {"schema": SCHEMA, "varied": ["topology", "iterations"], "keys": [*"abcde"]}
    (tmp_path / STUDY).write_text(json.dumps(document))
    return tmp_path


def test_the_report_shows_the_shortest_run_first_and_the_failures_last(folder):
    assert render(read_results(folder)) == GOLDEN


def test_the_csv_has_every_row_in_the_order_of_the_study(folder):
    assert results_csv(read_results(folder)) == CSV


def test_the_command_writes_table_and_picture_beside_the_results(folder, capsys):
    assert main(["sweep", "report", str(folder)]) == 0
    assert capsys.readouterr().out == GOLDEN
    assert (folder / "results.csv").read_text() == CSV
    assert (folder / "results.svg").read_text().startswith("<?xml")
    assert (folder / "results.png").read_bytes().startswith(b"\x89PNG")


def test_parquet_holds_the_columns_of_the_csv(folder, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    main(["sweep", "report", str(folder)])
    table = parquet.read_table(folder / "results.parquet").to_pydict()
    assert ",".join(table) == CSV.splitlines()[0]
    assert table["time_ns"] == [4000, 8000, 2000, None]


def test_a_folder_without_a_sweep_is_told(tmp_path, capsys):
    assert main(["sweep", "report", str(tmp_path)]) == 2
    assert "there is no sweep here" in capsys.readouterr().err


def test_rows_of_several_versions_are_told():
    rows = (ROWS[0], ROWS[1] | {"version": "2"})
    assert "several versions: 1, 2" in render(Results(("iterations",), rows)).replace("\n", " ")


def test_two_things_that_vary_make_a_heat_map_and_one_a_curve():
    heat = study_figure(ROWS[:3], ("topology", "iterations"))
    assert heat.axes[0].images[0].get_array().tolist() == [[4.0, 8.0], [2.0, None]]
    (curve,) = study_figure(ROWS[:2], ("iterations",)).axes[0].lines
    assert curve.get_xydata().tolist() == [[1.0, 4.0], [2.0, 8.0]]


def test_equal_results_give_equal_pictures():
    assert len({image(study_figure(ROWS[:3], ("topology", "iterations")), "svg") for _ in range(2)}) == 1


def test_the_picture_of_scaling_joins_the_shortest_runs_of_a_setting_and_rings_what_none_beats():
    sizes = ((8, 9000, 1), (8, 5000, 1), (16, 3000, 1), (8, 7000, 2), (16, 6000, 2), (16, 3500, 2))
    varied = ("comm_scale", "iterations")
    rows = [row(str(at), dict(zip(varied, (at, last), strict=True)), time) for at, (_, time, last) in enumerate(sizes)]
    rows = [one | {"figures": one["figures"] | {"npus": size[0]}} for one, size in zip(rows, sizes, strict=True)]
    _, first, _, second, ringed = scaling_figure(rows, varied).axes[0].lines
    assert first.get_xydata().tolist() == [[8.0, 5.0], [16.0, 3.0]]
    assert second.get_xydata().tolist() == [[8.0, 7.0], [16.0, 3.5]]
    assert ringed.get_xydata().tolist() == [[8.0, 5.0], [16.0, 3.0]]


def test_the_picture_of_scaling_joins_no_runs_of_different_networks():
    rows = [row(name, {"topology": name}, time) for name, time in (("ring8", 9000), ("mesh_8x8", 5000))]
    rows = [one | {"figures": one["figures"] | {"npus": npus}} for one, npus in zip(rows, (8, 64), strict=True)]
    runs, ringed = scaling_figure(rows, ("topology",)).axes[0].lines
    assert runs.get_linestyle() == ringed.get_linestyle() == "None"
    assert runs.get_xydata().tolist() == [[8.0, 9.0], [64.0, 5.0]]


POINTS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12)


@given(POINTS)
def test_the_front_holds_whatever_no_run_beats(points):
    best = front(points, itemgetter(0), itemgetter(1))
    assert best == sorted(best)
    for point in points:
        beaten = any(x <= point[0] and y <= point[1] and (x, y) != point for x, y in points)
        assert (point in best) == (not beaten)


def test_a_study_can_be_asked_who_is_best_in_two_figures(tmp_path, capsys):
    (tmp_path / "study.yaml").write_text(
        "run: {workload: micro_all_reduce}\ngrid: {topology: [ring8, ring64], comm_scale: [1, 2, 4]}\n"
    )
    folder = str(tmp_path / "results")
    assert main(["sweep", str(tmp_path / "study.yaml"), "-o", folder, "--jobs", "1", "-q"]) == 0
    capsys.readouterr()
    assert main(["sweep", "report", folder, "--pareto", "comm_scale", "time_ns"]) == 0
    shown = capsys.readouterr().out.partition("No run is better in both")[2]
    assert shown.count("ring8") == 1  # less to send is faster, and eight are faster than 64
    assert Path(folder, "pareto.svg").read_text().startswith("<?xml")
    assert main(["sweep", "report", folder, "--pareto", "topology", "time_ns"]) == 2
    assert "no figure and no number" in capsys.readouterr().err


def test_networks_without_a_price_stand_beside_the_front(tmp_path, capsys):
    study = "run: {workload: micro_all_reduce}\ngrid: {topology: [wafer_8x7, optical_16, ring8, dgx_a100_8]}\n"
    (tmp_path / "study.yaml").write_text(study)
    folder = str(tmp_path / "results")
    assert main(["sweep", str(tmp_path / "study.yaml"), "-o", folder, "--jobs", "1", "-q"]) == 0
    assert main(["sweep", "report", folder, "--pareto", "network_usd", "time_ns"]) == 0
    shown = " ".join(capsys.readouterr().out.partition("No run is better in both")[2].split())
    assert "3 of 4 runs have no such figure" in shown
    assert "ring8" in shown and "dgx_a100_8" not in shown
    (tmp_path / "study.yaml").write_text(study.replace(", ring8, dgx_a100_8", ""))
    assert main(["sweep", str(tmp_path / "study.yaml"), "-o", folder, "--jobs", "1", "-q"]) == 0
    assert main(["sweep", "report", folder, "--pareto", "network_usd", "time_ns"]) == 2
    assert "no run has these figures" in capsys.readouterr().err
