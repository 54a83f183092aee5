import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.cli import main
from simcore.errors import InputError, SimulationError
from simcore.sweep.run import execute, tasks
from simcore.sweep.store import appending, read_rows
from simcore.sweep.study import Study, read_study
from simcore.sweep.sweep import RESULTS, sweep
from simcore.sweep.workers import workers

STUDY = """\
run: {workload: micro_all_reduce}
grid:
  topology: [ring8, dgx_a100_8]
  topology.bandwidth[0]: [25, 50, -1]
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def finished(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    sweep(read_study(study), folder)
    return (folder / RESULTS).read_bytes()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_after_a_kill_at_any_byte_nothing_is_lost_and_nothing_repeated(study, finished, data):
    length = data.draw(st.integers(0, len(finished)))
    known = {row["key"]: row for row in map(json.loads, finished.splitlines())}
    ran = []

    def run_from_memory(missing):
        ran.extend(task.key for task in missing)
        return (known[task.key] for task in missing)

    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("simcore.sweep.workers.execute", lambda task: next(run_from_memory([task])))
        (Path(name) / RESULTS).write_bytes(finished[:length])
        rows = sweep(read_study(study), Path(name))
        assert (Path(name) / RESULTS).read_bytes() == finished
    assert rows == [*known.values()]
    assert len(ran) == len(known) - finished[:length].count(b"\n")


def test_a_real_kill_loses_nothing_and_ends_the_workers(study, tmp_path, finished):
    command = [sys.executable, "-m", "simcore", "sweep", str(study), "-o", str(tmp_path), "--jobs", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until = time.monotonic() + 120
    while not (tmp_path / RESULTS).exists() or not (tmp_path / RESULTS).stat().st_size:
        assert time.monotonic() < until
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)  # ends only when the workers, who hold the pipe too, are gone
    before = read_rows(tmp_path / RESULTS)
    assert before
    sweep(read_study(study), tmp_path)
    lines = (tmp_path / RESULTS).read_bytes().splitlines()
    assert sorted(lines) == sorted(finished.splitlines())
    assert [json.loads(line) for line in lines][: len(before)] == [*before.values()]


def test_two_workers_give_the_rows_of_one(study, tmp_path, finished):
    rows = sweep(read_study(study), tmp_path, jobs=2)
    assert rows == [json.loads(line) for line in finished.splitlines()]
    assert sorted((tmp_path / RESULTS).read_bytes().splitlines()) == sorted(finished.splitlines())


def test_failures_are_rows_that_tell_why_and_the_others_go_on(finished):
    rows = [json.loads(line) for line in finished.splitlines()]
    assert [bool(row["error"]) for row in rows] == [False, False, True] * 2
    assert "bandwidth[0] must be > 0" in rows[2]["error"]
    assert rows[2]["figures"] == {}


def test_failed_runs_are_done_again_only_when_asked(study, tmp_path, finished):
    (tmp_path / RESULTS).write_bytes(finished)
    sweep(read_study(study), tmp_path)
    assert (tmp_path / RESULTS).read_bytes() == finished
    sweep(read_study(study), tmp_path, retry=True)
    assert len((tmp_path / RESULTS).read_bytes().splitlines()) == 6 + 2


def test_a_varied_part_gives_the_figures_of_a_file_with_that_part(tmp_path):
    text = "topology: [Ring]\nnpus_count: [8]\nlatency: [500.0]\nbandwidth: [{}]\n"
    (tmp_path / "a.yaml").write_text(text.format(50))
    (tmp_path / "b.yaml").write_text(text.format(20))
    base = {"workload": "micro_all_reduce"}
    varied = base | {"topology": str(tmp_path / "a.yaml"), "topology.bandwidth[0]": 20}
    by_part, by_file = map(execute, tasks([varied, base | {"topology": str(tmp_path / "b.yaml")}]))
    assert by_part["figures"] == by_file["figures"] != {}


def test_equal_runs_are_done_once(tmp_path):
    one = {"workload": "micro_all_reduce", "topology": "ring8"}
    assert len(sweep(Study((), (one, dict(one))), tmp_path)) == 1
    assert len(read_rows(tmp_path / RESULTS)) == 1


def test_a_foreign_line_is_told_with_its_place(tmp_path):
    (tmp_path / RESULTS).write_text("{}\n")
    with pytest.raises(InputError, match=r"results.jsonl:1:1.*not a result"):
        read_rows(tmp_path / RESULTS)


def test_two_sweeps_never_write_to_one_file(tmp_path):
    with (
        appending(tmp_path / RESULTS),
        pytest.raises(InputError, match="another sweep"),
        appending(tmp_path / RESULTS),
    ):
        pass


def test_a_folder_of_somebody_else_is_refused(study, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        sweep(read_study(study), tmp_path)


def test_optuna_asks_for_the_same_runs_again_and_finds_them_done(tmp_path):
    pytest.importorskip("optuna")
    path = tmp_path / "study.yaml"
    path.write_text(
        "run: {workload: micro_all_reduce, topology: ring8}\nmethod: optuna\n"
        "random: {samples: 6, values: {'topology.bandwidth[0]': {low: 10, high: 100}}}\n"
    )
    rows = sweep(read_study(path), tmp_path / "out")
    whole = (tmp_path / "out" / RESULTS).read_bytes()
    (tmp_path / "out" / RESULTS).write_bytes(whole[:-100])
    assert sweep(read_study(path), tmp_path / "out") == rows
    assert (tmp_path / "out" / RESULTS).read_bytes() == whole


def test_without_optuna_the_method_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("simcore.sweep.study.find_spec", lambda name: None)
    path = tmp_path / "study.yaml"
    path.write_text("method: optuna\nrandom: {samples: 1, values: {iterations: [1]}}\n")
    assert main(["sweep", str(path)]) == 2
    assert "study.yaml:1:9: error: Optuna is not installed" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")  # Dask's own
def test_a_dask_cluster_gives_the_rows_of_this_process(study, tmp_path, finished):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as local:
        sweep(read_study(study), tmp_path, scheduler=local.scheduler_address)
    assert sorted((tmp_path / RESULTS).read_bytes().splitlines()) == sorted(finished.splitlines())


def test_a_run_that_kills_its_worker_is_a_row_and_the_others_go_on(study, tmp_path, finished, monkeypatch):
    known = [json.loads(line) for line in finished.splitlines()]
    asked = [*tasks(read_study(study).configurations)]
    (tmp_path / "deadly.py").write_text(
        "import os\nfrom simcore.sweep.run import execute\n"
        f"def run(task):\n    return os._exit(9) if task.key == {asked[1].key!r} else execute(task)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import deadly

    monkeypatch.setattr("simcore.sweep.workers.execute", deadly.run)
    with workers(2, None) as run:
        rows = {row["key"]: row for row in run(asked)}
    assert len(rows) == len(known)
    assert "ended from outside" in rows[asked[1].key]["error"]
    assert [rows[row["key"]] for row in known if row["key"] != asked[1].key] == [*known[:1], *known[2:]]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A Dask cluster of processes that know `deadly`."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.syspath_prepend(tmp_path)
    dask = pytest.importorskip("dask")
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as local:
        yield local


def test_a_dask_worker_that_is_killed_costs_one_row(cluster, study, tmp_path, finished, monkeypatch):
    asked = [*tasks(read_study(study).configurations)]
    (tmp_path / "deadly_run.py").write_text(
        "import os\nfrom simcore.sweep.run import execute\n"
        f"def run(task):\n    return os._exit(9) if task.key == {asked[1].key!r} else execute(task)\n"
    )
    import deadly_run

    monkeypatch.setattr("simcore.sweep.workers.execute", deadly_run.run)
    with workers(1, cluster.scheduler_address) as run:
        rows = {row["key"]: row for row in run(asked)}
    assert len(rows) == len(asked)
    assert "KilledWorker" in rows[asked[1].key]["error"]


def test_a_dask_scheduler_that_goes_away_is_told_and_the_rows_are_kept(study, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    (tmp_path / "slow_run.py").write_text(
        "import time\nfrom simcore.sweep.run import execute\n"
        "def run(task):\n    time.sleep(1)\n    return execute(task)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import slow_run

    monkeypatch.setattr("simcore.sweep.workers.execute", slow_run.run)
    started = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    address, processes = tmp_path / "scheduler.json", []
    with ExitStack() as ending:
        for words in (
            started,
            [sys.executable, "-m", "distributed.cli.dask_worker", "--nworkers", "1", "--no-dashboard"],
        ):
            command = [*words, "--scheduler-file", str(address)]
            process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            ending.callback(process.wait)
            ending.callback(process.kill)
            until = time.monotonic() + 120
            while not address.exists():
                assert time.monotonic() < until
                time.sleep(0.05)
            processes.append(process)
        with (
            pytest.raises(SimulationError, match="scheduler is gone"),
            workers(1, json.loads(address.read_text())["address"]) as run,
        ):
            rows = run([*tasks(read_study(study).configurations)])
            assert next(rows)["figures"]
            processes[0].kill()
            list(rows)
    assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)  # it would print a traceback


def test_parts_of_a_study_merge_to_the_whole(study, tmp_path, finished, capsys):
    for part in (1, 2):
        assert main(f"sweep {study} -o {tmp_path / 'all'} --jobs 1 --shard {part}/2 -q".split()) == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "all" / "results-2-of-2.jsonl").rename(tmp_path / "other" / "results-2-of-2.jsonl")
    assert main(f"sweep merge {tmp_path / 'all'} {tmp_path / 'other'}".split()) == 0
    lines = (tmp_path / "all" / RESULTS).read_bytes().splitlines()
    assert sorted(lines) == sorted(finished.splitlines())
    assert main(f"sweep merge {tmp_path / 'all'}".split()) == 0
    assert len((tmp_path / "all" / RESULTS).read_bytes().splitlines()) == len(lines)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b", "1/٢"])
def test_a_part_that_is_none_is_refused(study, tmp_path, shard, capsys):
    assert main(["sweep", str(study), "-o", str(tmp_path / "x"), "--shard", shard]) == 2
    assert "--shard" in capsys.readouterr().err
