import json
import logging
import os
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.errors import InputError, SimulationError
from simcore.sweep.report import read_results, render, results_csv, unbeaten
from simcore.sweep.run import execute, tasks
from simcore.sweep.study import Study, read_study
from simcore.sweep.sweep import RESULTS, _lock, appending, merge, read_rows, sweep
from simcore.sweep.workers import cores, workers

STUDY = """\
run: {workload: micro_all_reduce}
grid:
  topology: [ring8, dgx_a100_8]
  topology.bandwidth[0]: [25, 50, -1]
"""
CLOSED = "HYBRID_TRANSFORMER model_parallel_NPU_group: 8\n1\nrow -1 1000 ALLREDUCE 8388608 0 NONE 0 0 NONE 0 0\n"
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


def wait_for(what):
    """However long it takes, until something is true; what is not there yet is not."""
    while True:
        with suppress(FileNotFoundError, ValueError):
            if what():
                return
        time.sleep(0.005)


def test_a_real_kill_loses_nothing_and_ends_the_workers(study, tmp_path, finished):
    command = [sys.executable, "-m", "simcore", "sweep", str(study), "-o", str(tmp_path), "--jobs", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(lambda: process.poll() is not None or b"\n" in (tmp_path / RESULTS).read_bytes())
    process.kill()
    process.communicate()  # ends only when the workers, who hold the pipe too, are gone
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


def test_files_that_an_input_names_are_part_of_it(tmp_path):
    """A changed graph, circuit or schedule makes another run, and a varied input finds them, which lies elsewhere."""
    edges = [{"source": 0, "target": 1, "bandwidth": 8, "latency": 500}]
    graph = {"directed": False, "multigraph": False, "graph": {}, "nodes": [{"id": 0}, {"id": 1}], "links": edges}
    text = json.dumps(graph)
    for name, rate in (("one.json", 8), ("two.json", 4)):
        (tmp_path / name).write_text(text.replace('"bandwidth": 8', f'"bandwidth": {rate}'))
    (tmp_path / "net.yaml").write_text("graph: one.json\n")
    lists = "topology: [Ring]\nnpus_count: [2]\nbandwidth: [{}]\nlatency: [500]\n"
    (tmp_path / "full.yaml").write_text(lists.format(8))
    circuits = "circuits: {delay: 10 us, all_reduce: full.yaml}\n"
    (tmp_path / "switched.yaml").write_text(lists.format(2) + circuits)
    run = {"workload": "micro_all_reduce"}
    studied = [
        run | {"topology": str(tmp_path / "net.yaml"), "topology.name": "mine"},
        run | {"topology": str(tmp_path / "net.yaml"), "topology.graph": "two.json"},
        run | {"topology": str(tmp_path / "switched.yaml"), "topology.circuits.delay": "10 us"},
    ]

    def done():
        return [(task.key, execute(task)) for task in tasks(studied)]

    before = done()
    assert not any(row["error"] for _, row in before), before
    assert before[1][1]["figures"]["time_ns"] > 1.9 * before[0][1]["figures"]["time_ns"]
    (tmp_path / "two.json").write_text(text)
    assert [old == new for old, new in zip(before, done(), strict=True)] == [True, False, True]
    (tmp_path / "one.json").write_text(text.replace('"bandwidth": 8', '"bandwidth": 4'))
    (tmp_path / "full.yaml").write_text(lists.format(4))
    assert not any(old[0] == new[0] for old, new in zip(before, done(), strict=True))


@pytest.mark.parametrize("changed", ["model.json", "wafer.json", "times.txt", "rows/nodes/decode/node_0/decode0.csv"])
def test_files_that_a_workload_is_made_of_are_part_of_it(tmp_path, monkeypatch, changed):
    """Those that a specification names, beside it or where the command runs, and those in folders of a folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / changed).parent.mkdir(parents=True, exist_ok=True)
    options = "{model_config: ../model.json, system_config: ../wafer.json, bsz: 4, prefill_len: 8}"
    (tmp_path / "sub" / "wse.yaml").write_text(f"generator: wse\noptions: {options}\n")
    (tmp_path / "sub" / "gpt.yaml").write_text("generator: megatron\noptions: {comp_filepath: times.txt}\n")
    of = {"times.txt": "sub/gpt.yaml", "rows/nodes/decode/node_0/decode0.csv": "rows"}
    studied = [{"workload": of.get(changed, "sub/wse.yaml"), "topology": "ring8"}]
    keys = set()
    for content in ("one", "two", "one"):
        (tmp_path / changed).write_text(content)
        keys.add(next(tasks(studied)).key)
    assert len(keys) == 2


def test_a_specification_takes_the_model_beside_it_whether_a_part_varies_or_not(tmp_path, monkeypatch):
    """Not one of the same name where the command runs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for folder, hidden in ((tmp_path, 2048), (tmp_path / "sub", 512)):
        model = {"model_type": "llama", "hidden_size": hidden, "intermediate_size": 1024, "num_hidden_layers": 2,
                 "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1024,
                 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}  # fmt: skip
        (folder / "model.json").write_text(json.dumps(model))
        specification = (
            "generator: megatron\noptions: {model: model.json, world_size: 8, global_batch: 8, seq_length: 512}\n"
        )
        (folder / "gpt.yaml").write_text(specification)
    run = {"workload": "sub/gpt.yaml", "topology": "ring8"}
    asked = [run, run | {"workload.options.seq_length": 512}, run | {"workload": "gpt.yaml"}]
    whole, varied, another = (execute(task)["figures"]["time_ns"] for task in tasks(asked))
    assert whole == varied < another


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


def test_a_figure_that_no_run_has_is_not_sought_in_silence(tmp_path, capsys):
    pytest.importorskip("optuna")
    path, out = tmp_path / "study.yaml", str(tmp_path / "out")
    random = "random: {samples: 2, values: {comm_scale: {low: 1, high: 2}}}\n"
    path.write_text(
        f"run: {{workload: micro_all_reduce, topology: ring8}}\nmethod: optuna\nminimize: slowdown\n{random}"
    )
    assert main(["sweep", str(path), "-o", out, "--jobs", "1"]) == 2
    assert "study.yaml:3:11: error: no run has this figure" in capsys.readouterr().err
    assert main(["sweep", "report", out]) == 0
    assert "2 runs, 0 failed" in capsys.readouterr().out


def test_a_row_of_several_seeds_has_the_mean_and_the_spread_of_their_times():
    asked = {"workload": "gpt_7b", "topology": "ring8", "jitter": ["compute=lognormal:0.3"], "seed": 3}
    alone = [execute(next(tasks([asked | {"seed": seed}])))["figures"] for seed in (3, 4, 5)]
    row = execute(next(tasks([asked | {"runs": 3}])))["figures"]
    times_ns = [figures["time_ns"] for figures in alone]
    assert row.items() >= alone[0].items()
    assert row["mean_time_ns"] == round(sum(times_ns) / 3)
    assert min(times_ns) <= row["p5_time_ns"] <= row["p95_time_ns"] <= max(times_ns)


def test_without_optuna_the_method_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("simcore.sweep.study.find_spec", lambda name: None)
    path = tmp_path / "study.yaml"
    path.write_text("method: optuna\nrandom: {samples: 1, values: {iterations: [1]}}\n")
    assert main(["sweep", str(path)]) == 2
    assert "study.yaml:1:9: error: Optuna is not installed" in capsys.readouterr().err


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


PATIENCE = "300s"


@pytest.fixture
def dask():
    """Dask with patience."""
    pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with dask.config.set({f"distributed.comm.timeouts.{name}": PATIENCE for name in ("connect", "tcp")}):
        yield dask


ENDLESS = """\
import os, time
from simcore.sweep.run import execute
def run(task):
    if os.path.exists({folder!r} + "/kill") and task.key == {key!r}:
        os._exit(9)
    while os.path.exists({folder!r} + "/wait") and task.key == {key!r}:
        time.sleep(0.01)
    return execute(task)
"""


@pytest.fixture
def cluster(dask, tmp_path):
    """A Dask scheduler and a worker of two threads that know the modules of this folder: (address, scheduler)."""
    limits = {"COMM__TIMEOUTS__CONNECT": PATIENCE, "COMM__TIMEOUTS__TCP": PATIENCE, "SCHEDULER__ALLOWED_FAILURES": "0"}
    environment = os.environ | {f"DASK_DISTRIBUTED__{name}": value for name, value in limits.items()}
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{ROOT}"
    about, processes = tmp_path / "scheduler.json", []
    with ExitStack() as ending:
        for words in (["scheduler", "--port", "0"], ["worker", "--nthreads", "2"]):
            program = [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:], "--no-dashboard"]
            command = [*program, "--scheduler-file", str(about)]
            processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
            ending.callback(processes[-1].wait)
            ending.callback(processes[-1].kill)
            wait_for(lambda: processes[-1].poll() is not None or json.loads(about.read_text()))
        yield json.loads(about.read_text())["address"], processes[0]


def test_dask_gives_the_same_rows_a_worker_that_is_killed_costs_some_and_without_the_scheduler_the_sweep_ends(
    cluster, study, tmp_path, finished, monkeypatch
):
    address, scheduler = cluster
    sweep(read_study(study), tmp_path / "out", scheduler=address)
    assert sorted((tmp_path / "out" / RESULTS).read_bytes().splitlines()) == sorted(finished.splitlines())

    asked = [*tasks(read_study(study).configurations)]
    (tmp_path / "ending.py").write_text(ENDLESS.format(folder=str(tmp_path), key=asked[1].key))
    monkeypatch.syspath_prepend(tmp_path)
    import ending
    from distributed import default_client

    monkeypatch.setattr("simcore.sweep.workers.execute", ending.run)
    with workers(1, address) as run:
        (tmp_path / "kill").touch()
        rows = {row["key"]: row for row in run(asked)}
        assert rows.keys() == {task.key for task in asked}
        assert "KilledWorker" in rows[asked[1].key]["error"]

        (tmp_path / "kill").unlink()
        (tmp_path / "wait").touch()
        going = run(asked[:2])
        assert next(going)["key"] == asked[0].key
        default_client()._timeout = 1.0  # how long it hopes for the scheduler that is killed
        scheduler.kill()
        with pytest.raises(SimulationError, match="scheduler is gone"):
            next(going)
    assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)  # it would print a traceback


def test_a_dask_scheduler_that_is_not_there_is_told(dask):
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.1s"}),
        pytest.raises(InputError, match="no scheduler answers"),
        workers(1, "tcp://127.0.0.1:1"),
    ):
        pass


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


def test_parts_that_are_not_merged_yet_are_reported(study, tmp_path, finished, capsys):
    assert main(f"sweep {study} -o {tmp_path} --jobs 1 --shard 1/2 -q".split()) == 0
    part = read_results(tmp_path)
    assert (len(part.rows), part.num_missing) == (3, 3)
    assert main(f"sweep {study} -o {tmp_path} --jobs 1 --shard 2/2 -q".split()) == 0
    apart = results_csv(read_results(tmp_path))
    assert main(f"sweep merge {tmp_path}".split()) == 0
    assert results_csv(read_results(tmp_path)) == apart


FILES = st.sampled_from([RESULTS, "results-1-of-2.jsonl", "results-2-of-2.jsonl"])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(FILES, st.sampled_from("abc"), st.booleans()), min_size=1, max_size=8))
def test_a_run_that_succeeded_in_any_part_is_not_lost_to_its_failures(written):
    with TemporaryDirectory() as name:
        folder, succeeded = Path(name), dict[str, bool]()
        (folder / "study.json").write_text('{"schema": "simcore.sweep/1", "varied": [], "keys": ["a", "b", "c"]}')
        for file in dict.fromkeys(file for file, _, _ in written):  # a file says last what holds in it
            for key, succeeds in {key: succeeds for at, key, succeeds in written if at == file}.items():
                row = {"key": key, "options": {}, "inputs": {}, "version": "1"}
                row |= {"figures": {"time_ns": 1}, "error": ""} if succeeds else {"figures": {}, "error": "killed"}
                with (folder / file).open("a") as lines:
                    lines.write(json.dumps(row) + "\n")
                succeeded[key] = succeeds or succeeded.get(key, False)
        for _ in "once", "again":
            assert {row["key"]: not row["error"] for row in read_results(folder).rows} == succeeded
            assert merge(folder) == len(succeeded)
            assert {key: not row["error"] for key, row in read_rows(folder / RESULTS).items()} == succeeded


def test_the_next_command_that_is_told_can_be_typed(study, tmp_path, capsys):
    folder = str(tmp_path / "Anna's results")
    told = []
    for command in ["sweep", str(study), "--shard", "1/6", "-o"], ["sweep", str(study), "-o"], ["sweep", "merge"]:
        assert main([*command, folder]) == 0
        told.append(shlex.split(capsys.readouterr().out.partition("next: ")[2])[:4])
    assert told == [["simcore", "sweep", verb, folder] for verb in ("merge", "report", "report")]


@pytest.mark.parametrize("shard", ["0/2", "3/2", "2", "a/b", "1/٢"])
def test_a_part_that_is_none_is_refused(study, tmp_path, shard, capsys):
    assert main(["sweep", str(study), "-o", str(tmp_path / "x"), "--shard", shard]) == 2
    assert "--shard" in capsys.readouterr().err


def test_where_nobody_says_which_cores_are_ours_all_are(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS and Windows
    assert cores() == os.cpu_count()


@pytest.mark.parametrize("taken", [False, True])
def test_windows_locks_results_with_its_own_function(monkeypatch, tmp_path, taken):
    class Msvcrt:
        LK_NBLCK = 2

        @staticmethod
        def locking(file, *_):
            assert os.lseek(file, 0, os.SEEK_CUR) >= 1 << 40  # Windows lets nobody read what is locked
            if taken:
                raise OSError

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", Msvcrt)
    monkeypatch.setattr(sys, "platform", "win32")
    outcome = pytest.raises(InputError, match="another sweep") if taken else nullcontext()
    with (tmp_path / "rows").open("wb") as file, outcome:
        _lock(file.fileno(), tmp_path)


def test_closed_forms_are_swept_as_they_are_run(tmp_path):
    """Their bandwidths vary, from a file, too, whose content is part of the key; there is no network to pay."""
    (tmp_path / "w.txt").write_text(CLOSED)
    (tmp_path / "busbw.yaml").write_text("test\nTP:\nallreduce,: 100\n")
    same = {"workload": str(tmp_path / "w.txt"), "gpus": 8}
    drawn = {"gpu_type": ["H100"], "nic_bw": {"low": 10, "high": 20}}
    study = {
        "run": same,
        "grid": {"profile": ["simai-1.6"], "nvlink_bw": [100, 200], "nic_bw": [48.5]},
        "list": [{"profile": "simai-busbw", "busbw": str(tmp_path / "busbw.yaml")}],
        "random": {"samples": 1, "values": {"profile": ["simai-1.6"], **drawn}},
    }
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    rows = sweep(read_study(tmp_path / "study.yaml"), tmp_path / "results")
    for row in rows:
        assert row["error"] == ""
        assert row["figures"]["time_ns"] == simcore.run(**row["options"]).time_ns
        assert "network_usd" not in row["figures"]
    assert rows[0]["figures"]["time_ns"] > rows[1]["figures"]["time_ns"]
    (tmp_path / "busbw.yaml").write_text("test\nTP:\nallreduce,: 50\n")
    keys = [task.key for task in tasks(read_study(tmp_path / "study.yaml").configurations)]
    assert [row["key"] == key for row, key in zip(rows, keys, strict=True)] == [True, True, False, True]


def test_files_of_jobs_are_swept_with_every_jobs_figures(tmp_path):
    """As `run_jobs` gives them; a part of the file varies, and its traces, which lie beside it, are found."""
    graph = simcore.graph(4)
    graph.collective("all_reduce", 10**6)
    graph.save(tmp_path / "sum")
    jobs = [{"name": name, "workload": "sum", "npus": 4, "place": "spread"} for name in ("sum", "other")]
    (tmp_path / "jobs.yaml").write_text(json.dumps({"topology": "ring8", "jobs": jobs}))
    places = ["spread", [0, 1, 2, 3]]
    study = {"run": {"workload": str(tmp_path / "jobs.yaml")}, "grid": {"workload.jobs[0].place": places}}
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    rows = sweep(read_study(tmp_path / "study.yaml"), tmp_path / "results")
    for row, place in zip(rows, places, strict=True):
        jobs[0]["place"] = place
        (tmp_path / "alone.yaml").write_text(json.dumps({"topology": "ring8", "jobs": jobs}))
        found = simcore.run_jobs(tmp_path / "alone.yaml").to_dict()
        for job in found["jobs"]:
            for figure in ("alone_step_ns", "step_ns", "slowdown"):
                assert row["figures"][f"{job['name']}.{figure}"] == job[figure]
        assert row["figures"]["slowdown"] == max(job["slowdown"] for job in found["jobs"])
        assert row["figures"]["time_ns"] == found["time_ns"]
    assert rows[0]["figures"]["slowdown"] > 1.5 and "network_usd" in rows[0]["figures"]
    results = read_results(tmp_path / "results")
    assert "other.step" in render(results) and "other.alone_step_ns" in results_csv(results)
    assert "No run is better" in unbeaten(results, ("slowdown", "other.step_ns"))
    study["run"]["profile"] = "astra-sim-2"  # whose gigabytes are larger, and cost no more
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    [_, row] = sweep(read_study(tmp_path / "study.yaml"), tmp_path / "binary")
    assert row["figures"]["network_usd"] == rows[1]["figures"]["network_usd"]
    del study["run"]["profile"]
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    keys = {row["key"] for row in rows}
    traces = next(tmp_path.glob("sum.0.*"))
    traces.write_bytes(traces.read_bytes() + b"\n")
    assert not keys & {task.key for task in tasks(read_study(tmp_path / "study.yaml").configurations)}
    study["run"]["iterations"] = 2
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    [row, _] = sweep(read_study(tmp_path / "study.yaml"), tmp_path / "other")
    assert "--iterations: error: does not go with several jobs" in row["error"]


def test_a_job_whose_workload_is_its_own_file_is_that_runs_error(tmp_path):
    """Hashing what it names ended in a RecursionError."""
    path = tmp_path / "jobs.yaml"
    path.write_text(json.dumps({"topology": "ring8", "jobs": [{"name": "a", "workload": "jobs.yaml", "npus": 4}]}))
    (tmp_path / "study.yaml").write_text(json.dumps({"run": {"workload": str(path)}, "grid": {"comm_scale": [1]}}))
    (row,) = sweep(read_study(tmp_path / "study.yaml"), tmp_path / "out", jobs=1)
    assert "this is a file of jobs" in row["error"]
