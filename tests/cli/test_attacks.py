"""What somebody hostile, careless or short of memory types: every one ends soon, with a message and no traceback."""

import io
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import simcore
from simcore.cli import main
from simcore.errors import InputError
from simcore.memory import Watch
from simcore.report.table import Table, columns
from simcore.workload import archives

MESH = "topology: [{0}]\nnpus_count: [{1}]\nbandwidth: [50.0]\nlatency: [500.0]\n"
RUN = "run -q --workload micro_all_reduce --topology"


def refused(capsys, words: str) -> str:
    assert main(words.split() if isinstance(words, str) else words) == 2
    said = capsys.readouterr().err
    assert "error:" in said
    assert "Traceback" not in said
    return said


def limited(words: str, folder: Path, more_bytes: int) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own with so much address space beside what its imports take."""
    code = "import resource, sys, simcore.api; from simcore.cli import main\n"
    code += "taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
    code += f"resource.setrlimit(resource.RLIMIT_AS, (taken + {more_bytes},) * 2); sys.exit(main(sys.argv[1:]))"
    env = {**os.environ, "PYTHONPATH": str(Path.cwd()), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code, *words.split()]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the address space of a process")


@linux
def test_a_mesh_that_needs_more_memory_than_there_is_says_so(tmp_path):
    text = "topology: [Mesh, Mesh]\nnpus_count: [500, 8]\nbandwidth: [50.0, 50.0]\nlatency: [500.0, 500.0]\n"
    (tmp_path / "net.yaml").write_text(text)
    done = limited(f"{RUN} net.yaml", tmp_path, 32 << 20)
    assert done.returncode == 2, done.stderr
    assert "needs more memory than there is" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_that_a_library_makes_of_the_end_of_memory_is_the_end_of_memory():
    """SimPy looks at the traceback of an error, and an allocation that failed may have none."""
    lost = AttributeError("'NoneType' object has no attribute 'tb_next'")
    lost.__context__ = MemoryError()
    assert Watch().ended(lost)
    assert not Watch().ended(AttributeError("a defect"))


def test_the_end_of_memory_is_told_though_the_watch_interrupts_what_tells_it(monkeypatch, capsys):
    """Its interrupt may come when the command has already met a MemoryError of its own."""
    ended = Watch.ended

    def interrupted(watch: Watch, error: BaseException) -> bool:
        if isinstance(error, MemoryError):
            watch.used_bytes = 1 << 30
            raise KeyboardInterrupt
        return ended(watch, error)

    def play(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Watch, "ended", interrupted)
    monkeypatch.setattr("simcore.cli.run.play", play)
    assert "needs more memory than there is" in refused(capsys, f"{RUN} ring8")


@linux
def test_a_dense_network_is_estimated_before_it_is_built(tmp_path):
    (tmp_path / "net.yaml").write_text(MESH.format("FullyConnected", 300_000))
    done = limited(f"topology show {tmp_path}/net.yaml", tmp_path, 2 << 30)
    assert done.returncode == 2
    assert "MB for the links of 300,000 NPUs in dimension 0" in done.stderr


@linux
def test_messages_that_do_not_fit_are_estimated_before_they_are_made(tmp_path):
    """8,000 x 7,999 messages of an all-to-all on a line, where no two NPUs are alike."""
    (tmp_path / "net.yaml").write_text(MESH.format("Mesh", 8000))
    done = limited(f"run --workload micro_all_to_all --topology {tmp_path}/net.yaml", tmp_path, 3 << 30)
    assert done.returncode == 2
    assert "MB for the messages of a collective of 8,000 NPUs" in done.stderr


@pytest.mark.parametrize(
    ("option", "named"),
    [("--fault|link 3-4 x1e-15", "at least x1e-06"), ("--iterations|1000000000", "--iterations")],
)
def test_a_run_that_would_not_end_is_refused(option, named, capsys):
    assert named in refused(capsys, [*RUN.split(), "ring8", *option.split("|")])


def test_more_chunks_than_help_are_refused(tmp_path, capsys):
    (tmp_path / "system.json").write_text('{"preferred-dataset-splits": 1000000000000000000}')
    said = refused(capsys, f"{RUN} ring8 --system {tmp_path}/system.json")
    assert "system.json:1:" in said
    assert "4,096" in said


def piped(path: Path, content: bytes) -> None:
    """A named pipe with somebody who writes into it."""
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,), daemon=True).start()


def test_a_pipe_is_read_as_the_file_it_stands_for(tmp_path, capsys):
    text = Path("workloads/micro_all_reduce.txt").read_bytes()
    piped(tmp_path / "pipe", text)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert main(["run", "--json", "--workload", str(tmp_path / "pipe"), "--topology", "ring8"]) == 0
    most = 500_000 * (1024 if sys.platform == "darwin" else 1)  # there in bytes, elsewhere in kilobytes
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + most
    by_pipe = json.loads(capsys.readouterr().out)
    assert main(["run", "--json", "--workload", "workloads/micro_all_reduce.txt", "--topology", "ring8"]) == 0
    by_file = json.loads(capsys.readouterr().out)
    assert by_pipe["inputs"][0].pop("path") != by_file["inputs"][0].pop("path")
    assert by_pipe == by_file


def test_a_chakra_document_whose_nodes_are_no_list_is_refused(tmp_path, capsys):
    (tmp_path / "t.json").write_text('{"meta":{},"nodes":5}')
    assert "t.json:1:20: error: nodes: must be a list" in refused(capsys, f"trace info {tmp_path}/t.json")


def test_a_name_cannot_steer_the_terminal(tmp_path, capsys):
    (tmp_path / "w.txt").write_text("DATA\n1\nfc\x1b[31m -1 x NONE 0 1 NONE 0 1 ALLREDUCE 4 1\n")
    assert "\x1b" not in refused(capsys, f"run --workload {tmp_path}/w.txt --topology ring8")


def test_an_output_that_is_full_is_an_error_and_no_traceback(monkeypatch, capsys):
    class Full(io.StringIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    assert main(["list", "profiles", "--json"]) == 2
    assert capsys.readouterr().err == "simcore list: error: No space left on device\n"


@linux
@pytest.mark.parametrize(("shell", "status"), [(">/dev/full", 2), (">/dev/full 2>&1", 2), (">&-", 0), (">&- 2>&-", 0)])
def test_a_process_whose_output_is_full_or_closed_ends_in_good_order(shell, status):
    words = ["sh", "-c", f"{sys.executable} -m simcore list profiles {shell}"]
    done = subprocess.run(words, capture_output=True, text=True, env={})  # as without a locale
    assert (done.returncode, "Exception" in done.stderr) == (status, False)


@linux
@pytest.mark.parametrize(("shell", "status"), [("dlrm >&-", 0), ("dlrm 2>&-", 0), ("- <&-", 2)])
def test_a_run_with_a_closed_stream_ends_in_good_order(shell, status):
    words = ["sh", "-c", f"{sys.executable} -m simcore run --topology ring8 --workload {shell}"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False)


def test_a_name_cannot_become_a_spreadsheets_formula():
    assert Table("", columns("name"), [["=cmd|' /C calc'!A0"], ["-1.5"], [None], [-2], ["a\x1b[2J"]]).csv() == (
        "name\n'=cmd|' /C calc'!A0\n-1.5\n\"\"\n-2\na?[2J\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        "--straggler ٣=2",
        "--straggler 3=٣",
        "--jitter compute=normal:٠",
        "--comm-scale 1_0",
        "--ranks ٣ --timeline t.svg",
        "--iteration ٣ --timeline t.svg",
    ],
)
def test_digits_of_other_scripts_are_no_numbers(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(capsys, f"{RUN} ring8 {words}")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    import gzip

    bomb = 512 * gzip.compress(bytes(1 << 20))  # a thousand times its size: what is read ahead matters little
    unpacked = []

    class Counting(gzip.GzipFile):
        def read(self, size=-1):
            unpacked.append(len(piece := super().read(size)))
            return piece

    with pytest.MonkeyPatch.context() as patch, pytest.raises(archives.InputError, match="unpacks to more than"):
        patch.setattr(gzip, "GzipFile", Counting)
        archives.unpacked(bomb, "bomb.gz")
    assert sum(unpacked) <= archives.LEAST_LIMIT_BYTES + archives.PIECE_BYTES


def test_a_name_with_control_characters_leaves_pictures_that_can_be_read(tmp_path, capsys):
    from xml.etree import ElementTree

    (tmp_path / "w.txt").write_text("DATA\n1\nfc\x02\x7f -1 1000 NONE 0 1 NONE 0 1 ALLREDUCE 4096 1\n")
    assert main(f"run -q --workload {tmp_path}/w.txt --topology ring8 --timeline {tmp_path}/t.svg".split()) == 0
    ElementTree.parse(tmp_path / "t.svg")  # noqa: S314 - our own file


def test_a_users_matplotlibrc_and_backend_change_no_byte(tmp_path):
    """They are read where matplotlib is imported first, in a process of its own; it refuses a backend that is none."""
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nsavefig.dpi: 30\naxes.grid: True\nfont.size: 30\n")
    words = [*RUN.split(), "ring8", "--timeline"]
    env = {**os.environ, "PYTHONPATH": str(Path.cwd()), "MPLBACKEND": "nonsense"}
    own = subprocess.run([sys.executable, "-m", "simcore", *words, "own.svg"], cwd=tmp_path, env=env)
    assert own.returncode == main([*words, str(tmp_path / "plain.svg")]) == 0
    assert (tmp_path / "own.svg").read_bytes() == (tmp_path / "plain.svg").read_bytes()


NET = '{"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}'


@pytest.mark.parametrize("force", ["", " --force"])
def test_an_input_is_never_overwritten(force, tmp_path, capsys):
    (tmp_path / "net.json").write_text(NET)
    refused(capsys, f"run --workload dlrm --topology {tmp_path}/net.json --timeline {tmp_path}/net.json{force}")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text(NET)
    said = refused(capsys, f"run --workload dlrm --topology {tmp_path}/out/report.json -o {tmp_path}/out{force}")
    assert ("is an input" if force else "not empty") in said
    assert (tmp_path / "net.json").read_text() == (tmp_path / "out" / "report.json").read_text() == NET


@pytest.mark.parametrize("force", ["", " --force"])
def test_what_an_earlier_set_leaves_beside_the_one_that_replaces_it_is_told(force, tmp_path, capsys):
    """Whoever reads the set takes it for a part."""
    text = Path("workloads/dlrm.txt").absolute()
    assert main(f"convert {text} {tmp_path}/w --npus 9".split()) == 0
    for name in ("w.groups.json", "v.30.et", "w.31.json", "w.et"):
        (tmp_path / name).write_bytes(b"")
    capsys.readouterr()
    assert main(f"convert {text} {tmp_path}/w --npus 7{force}".split()) == (0 if force else 2)
    told = f"warning: there before, and read as one set with what was written: {tmp_path}/w.7.et, w.8.et, w.groups.json"
    assert (told in capsys.readouterr().err.splitlines()) == bool(force)


@pytest.mark.parametrize("option", ["--timeline {}/there.svg", "--links {}/there.svg", "-o {}"])
def test_what_is_there_is_refused_before_the_simulation(option, tmp_path, capsys, monkeypatch):
    (tmp_path / "there.svg").write_text("mine")
    monkeypatch.setattr("simcore.api.play", lambda *_: pytest.fail("it was simulated"))
    assert "--force" in refused(capsys, f"run --workload dlrm --topology ring8 {option.format(tmp_path)}")


def test_a_file_where_a_folder_is_meant_is_named(tmp_path, capsys):
    (tmp_path / "there").write_text("mine")
    assert "expected: a new or empty folder" in refused(capsys, f"{RUN} ring8 --force -o {tmp_path}/there")


@pytest.mark.parametrize(
    "line", ["force: true", "output: /tmp/x", "timeline: [x.png]", "iterations: 0", "comm_scale: .nan"]
)
def test_a_run_yaml_cannot_write_and_is_checked_as_options_are(line, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(f"options:\n  {line}\n")
    assert "run.yaml:2:" in refused(capsys, f"{RUN} ring8 --config {tmp_path}/run.yaml")


@pytest.mark.parametrize("option", ["--gpus 8", "--tp-overlap 0.5", "--window 1ms:2ms", "--ranks 0", "--iteration 0"])
def test_an_option_that_would_do_nothing_is_refused(option, capsys):
    assert option.split()[0] in refused(capsys, f"{RUN} ring8 {option}")


def test_options_are_written_with_hyphens_or_underscores(capsys):
    assert main([*RUN.split(), "ring8", "--queues_per_dim", "2", "--no_fold"]) == 0


def test_without_folding_the_warnings_are_the_same():
    import simcore

    folded, unfolded = (
        simcore.run("dlrm", "ring8", jitter="compute=lognormal:0.02", no_fold=each).warnings for each in (False, True)
    )
    assert folded == unfolded


@pytest.mark.parametrize("words", [[], ["generate"], ["sweep"], ["cost"]], ids=" ".join)
def test_nothing_typed_prints_the_help(words, capsys):
    assert main(words) == 0
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rnu", "did you mean 'run'?"),
        ("topology shw ring8", "did you mean 'show'?"),
        ("data get x", "one of: add, list, predict"),
        ("run --jitter", "--jitter: error: needs a value\n  expected: --jitter WHAT=KIND:WIDTH\n  hint:"),
        ("run --no_fold=1", "--no-fold: error: takes no value\n  expected: --no-fold\n"),
        ("topology show ring8 x", "expected: simcore topology show [OPTIONS] T\n  found:    x\n"),
        ("run --num-passes 3", "expected: --iterations, as it is called here"),
        ("predict --gpus 8", "expected: --accelerators, as it is called here"),
        ("predict", "--model: error: the option is missing\n  expected: --model"),
        ("replay", "TRACE...: error: the argument is missing\n  expected: simcore replay [OPTIONS] TRACE..."),
        ("topology show", "T: error: the argument is missing"),  # which is called as the verb
        ("cost scaling --chip b100", "--chip: error: wrong value\n  expected: did you mean 'H100'?"),
        ("replay x --set zz=3", "--set: error: wrong value\n  expected: one of dp, tp,"),
        ("replay x --scale", "--scale: error:"),
    ],
)
def test_a_wrong_word_is_told_with_the_right_ones(words, said, capsys):
    assert said in refused(capsys, words)


@pytest.mark.parametrize("given", ["0", "two"])
def test_a_number_out_of_its_range_is_told_with_what_is_expected(given, capsys):
    assert main(["search", "study.yaml", "--top", given]) == 2
    told = capsys.readouterr().err
    assert told == f"--top: error: wrong value\n  expected: a whole number of at least 1\n  found:    '{given}'\n"


def test_two_outputs_of_one_name_are_refused_before_anything_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = ["run", "--workload", "dlrm", "--topology", "ring8", "--timeline", "x.png", "--links", "./x.png"]
    assert main(run) == 2
    assert "two outputs have this name" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_files_that_are_written_are_named_with_how_to_open_them(tmp_path, capsys):
    assert main(f"run --workload dlrm --topology ring8 -o {tmp_path}/out".split()) == 0
    told = capsys.readouterr().err
    assert f"written: {tmp_path}/out/" in told
    assert "https://ui.perfetto.dev" in told


STUDY = "accelerators: 8\nseq: 64\nglobal_batch: 8\n"
TWO_JOBS = "jobs: [{workload: dlrm, npus: 4}, {workload: dlrm, npus: 4}]\n"
OPTIONS = "options:\n  workload: dlrm\n  topology: ring8\n"
WSE = "generator: wse\noptions: {model_config: no.json, system_config: s.json}\n"
SYSTEM = "all-reduce-implementation: [{schedule: no.yaml}]\n"


@pytest.mark.parametrize(
    ("words", "content", "place"),
    [
        ("search", "model: llama-3-8bb\ncluster: h100\n" + STUDY, "1:8: error: there"),
        ("search", "cluster: {accelerator: H1000}\nmodel: gpt-1.7b\n" + STUDY, "1:24:"),
        ("search", "cluster: nowhere.yaml\nmodel: gpt-1.7b\n" + STUDY, "1:10: error: cannot read"),
        ("run", "topology: ring8\njobs: [{workload: dlrmm, npus: 4}]\n", "2:19: error: there is no such file"),
        ("run", "topology: ring8\njobs: [{workload: no.txt, npus: 4}]\n", "2:19: error: cannot read"),
        ("run", "topology: rng8\n" + TWO_JOBS, "1:11: error: there is no such file"),
        ("run", "topology: ring8\nsystem: no.json\n" + TWO_JOBS, "2:9: error: cannot read"),
        ("run", "topology: ring8\nnetwork: 5\n" + TWO_JOBS, "2:10: error: network must be a text"),
        ("run", "topology: ring8\nnetwork: fairer\n" + TWO_JOBS, "2:10: error: profile native has no network"),
        ("run --config", OPTIONS.replace("dlrm", "dlrmm"), "2:13: error: there is no such file"),
        ("run --config", OPTIONS + "  system: no.json\n", "4:11: error: cannot read"),
        ("run --config", OPTIONS + "  straggler: ['99=2']\n", "4:14: error: there is no such NPU"),
        ("run --config", OPTIONS + "  config: f.yaml\n", "4:3: error: unknown key 'config'"),
        ("sweep", "run: {workload: dlrm}\ngrid: {topology: [ring8, rng8]}\n", "2:26: error: there is no such file"),
        ("generate wse faults --counts 1 --topology mesh_8x8 --workload", WSE, "2:25: error: cannot read"),
        ("run --workload dlrm --topology ring8 --system", SYSTEM, "1:40: error: cannot read"),
    ],
)  # fmt: skip
def test_a_name_in_a_file_that_leads_nowhere_is_told_where_it_stands(words, content, place, tmp_path, capsys):
    (tmp_path / "f.yaml").write_text(content)
    assert f"f.yaml:{place}" in refused(capsys, [*words.split(), f"{tmp_path}/f.yaml"])


def test_what_is_typed_beside_a_file_of_options_is_blamed_itself(tmp_path, capsys):
    (tmp_path / "f.yaml").write_text(OPTIONS)
    assert refused(capsys, ["run", "--config", f"{tmp_path}/f.yaml", "--topology", "rng8"]).startswith(
        "--topology: error:"
    )


def test_a_text_is_no_trace(tmp_path, capsys):
    (tmp_path / "w.et").write_text("DATA\n1\nfirst -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n")
    assert "this is a text workload" in refused(capsys, ["trace", "info", f"{tmp_path}/w.et"])


def test_a_study_of_a_search_and_a_configuration_are_told_what_they_are(tmp_path, capsys):
    (tmp_path / "s.yaml").write_text("model: gpt-1.7b\ncluster: h100\n" + STUDY)
    (tmp_path / "net.yaml").write_text("topology: [Ring]\nnpus_count: [2]\n")
    for words in ("sweep", "run", "run --topology ring8 --workload"):
        assert "this is a study of simcore search" in refused(capsys, [*words.split(), f"{tmp_path}/s.yaml"])
    for words in ("validate --data", "generate megatron --world_size 8 --model", "replay docs/traces --host"):
        assert "this is a topology" in refused(capsys, [*words.split(), f"{tmp_path}/net.yaml"])


def test_groups_without_effect_and_a_folder_as_a_prefix_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.json").write_text("{}")
    assert main(["run", "--workload", "dlrm", "--topology", "ring8", "--comm-groups", "g.json"]) == 0
    assert "--comm-groups changes nothing" in capsys.readouterr().err
    assert main(["run", "--workload", "dlrm", "--topology", "ring8", "--comm-groups", "empty"]) == 0
    assert "comm-groups" not in capsys.readouterr().err
    assert "this is a folder" in refused(capsys, ["convert", "w.txt", ".", "--npus", "4"])


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("run --workload dlrm --topology ring8 --power H1000", "--power"),
        ("run --workload dlr --topology ring8", "--workload"),
        ("topology cost ring8 --prices none", "--prices"),
        ("run --workload dlrm --topology=", "--topology"),
        ("cost failures --nodes 10 --mtbf 1 --days 1", "--mtbf"),
        ("generate schedule --kind all_gather --topology ring8 --algorithm best -o best.yaml", "--algorithm"),
        ("generate megatron --model gpt-13b --world_size 8 --global_batch 8 --gpu_type H1000", "--gpu_type"),
    ],
)
def test_what_nothing_has_or_is_beyond_reason_is_told_at_its_option(words, option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, words).startswith(f"{option}: error:")


def test_letters_that_the_output_cannot_take_are_escaped(tmp_path):
    """A pipe on Windows takes what is in cp1252."""
    (tmp_path / "w.txt").write_text("DATA\n1\né→ -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 4 1\n", encoding="utf-8")
    words = [sys.executable, "-m", "simcore", "run", "--workload", f"{tmp_path}/w.txt", "--topology", "ring8", "--json"]
    made = subprocess.run(words, env={**os.environ, "PYTHONIOENCODING": "cp1252"}, capture_output=True)
    assert json.loads(made.stdout.decode("cp1252"))["layers"][0]["name"] == "é→"


@linux
@pytest.mark.parametrize("output", ["", "-o new", "--timeline t.png", "--timeline t.svg --links l.png"])
def test_the_path_of_an_input_may_be_no_utf_8(output, tmp_path, monkeypatch, capsys):
    """A name in Latin-1, say."""
    workloads = Path("workloads").resolve()
    monkeypatch.chdir(tmp_path)
    named = os.fsdecode(b"d\xe9")
    shutil.copytree(workloads, named)
    words = ["run", "--workload", f"{named}/dlrm.txt", "--topology", "ring8", "--json", "-q", *output.split()]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["path"] == "d?/dlrm.txt"


@linux
def test_the_path_of_a_trace_may_be_no_utf_8(tmp_path, capsys):
    path = tmp_path / os.fsdecode(b"d\xe9.json.gz")
    shutil.copy("docs/traces/rank0.json.gz", path)
    assert main(["replay", str(path), "--json", "-q"]) == 0
    assert "d?.json.gz" in capsys.readouterr().out


@pytest.mark.parametrize("role", ["workload", "topology", "system"])
def test_an_input_of_no_known_kind_is_named_in_python(role):
    with pytest.raises(InputError, match=f"--{role}: error: this is no {role}"):
        simcore.run(**{"workload": "micro_all_reduce", "topology": "ring8", role: 5})
