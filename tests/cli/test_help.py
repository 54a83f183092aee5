"""Every verb's help shows examples, and their options exist."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import numpy as np
import pytest

from simcore import peers
from simcore.cli import cli, main
from simcore.cli.command import Command, Option
from simcore.cli.kinds import Target
from simcore.cli.table import _parameter, options_of
from simcore.cost.closed.simple import CHIPS, Variant
from simcore.cost.words import CHOICES
from simcore.generate.aicb.options import FRAMES
from simcore.library import table
from simcore.replay.kinds import categories
from simcore.workload.model import CollectiveKind
from tests.laws.inputs import inputs


def tree(command: click.Command, path: tuple[str, ...]):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from tree(found, (*path, name))


ROOT = Path(__file__).parents[2]
TREE = dict(tree(cli, ("simcore",)))
LEAVES = {path: command for path, command in TREE.items() if not isinstance(command, click.Group)}


def shown(path: tuple[str, ...]) -> list[str]:
    with click.Context(TREE[path], info_name=path[-1], terminal_width=80) as context:
        return [line.strip() for line in TREE[path].get_help(context).splitlines()]


def examples(path: tuple[str, ...]) -> list[str]:
    return [line for line in shown(path) if line.startswith("simcore ")]


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_every_verb_shows_an_example(path):
    assert examples(path)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_no_option_takes_an_empty_value_for_none(path, capsys):
    """A variable of the shell that is not set."""
    for option in (one for one in LEAVES[path].params if isinstance(one, click.Option) and not one.is_flag):
        name = max(option.opts, key=len)
        assert main([*path[1:], name, *[""] * option.nargs]) == 2
        assert f"{name}: error:" in capsys.readouterr().err


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_no_line_of_a_help_is_cut_off(path):
    assert not [line for line in shown(path) if line.endswith("...") and not line.startswith("Usage:")]


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_the_options_of_the_examples_exist(path):
    for example in examples(path):
        words = shlex.split(example, comments=True)
        lengths = [length for length in range(len(words), 0, -1) if tuple(words[:length]) in LEAVES]
        named = tuple(words[: lengths[0]]) if lengths else path  # `sweep start` may be left out
        named = ("simcore", "sweep", "start") if named == ("simcore", "sweep") else named
        LEAVES[named].make_context("example", words[lengths[0] if lengths else 2 :])


NOT_RUN = (
    "simcore validate",  # minutes, and tests of their own
    "simcore replay traces/ --set",  # tests/replay has recordings with layers
    "simcore replay kineto.json.gz --host",  # and host traces that belong to one
)
# What examples call the files of their reader -> inputs of tests/laws, files of ours, or a content
FILES = {
    "trace.txt": "workload.txt", "step.txt": "workload.txt", "workload.txt": "workload.txt", "net.yaml": "network.yml",
    "net.json": "first.json", "config.json": "model.json", "system.json": "phases.json",
    "log/log.log": "log.txt", "old.0.eg": "old.eg", "w.0.et": "trace.et", "study.yaml": "study.yaml",
    "sweep.yaml": "sweep.yaml", "traces/profile.json": "profile.json", "kineto.json.gz": "profile.json.gz",
    **{f"{name}.{rank}.et": f"t.{rank}.et" for name in ("traces/llama", "traces/w", "monday/llama", "friday/llama")
       for rank in range(4)},
    **{f"{folder}rank{rank}.json.gz": ROOT / f"docs/traces/rank{rank}.json.gz" for folder in ("", "before/", "after/")
       for rank in range(2)},
    "wafer.yaml": b"topology: [Mesh, Mesh]\nnpus_count: [4, 4]\nbandwidth: [50, 50]\nlatency: [10, 10]\n",
    "my_h100_gemm.csv": b"dtype,n,k,m,time_us\nbf16,4096,4096,4096,215.0\n",
    "gemm.csv": b"dtype,n,k,m,time_us\nbf16,4096,4096,8192,410.0\n",
    "jobs.yaml": b"topology: ring8\njobs: [{name: a, workload: dlrm, npus: 4}, {name: b, workload: dlrm, npus: 4}]\n",
    "spec.yaml": b"generator: wse\noptions: {model_config: config.json, system_config: system.json, bsz: 8}\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder with the files that examples of the help speak of."""
    folder, given = tmp_path_factory.mktemp("reader"), tmp_path_factory.mktemp("given")
    inputs(given)
    for name, source in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(source if isinstance(source, bytes) else (given / source).read_bytes())
    np.savez(folder / "aic_h100_gemm.npz", dtype=np.array(["bf16"]), n=[4096], k=[4096], m=[8192])
    (folder / "shared").mkdir()
    assert main(["sweep", str(given / "sweep.yaml"), "-o", str(folder / "results"), "--jobs", "1", "-q"]) == 0
    return folder


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_examples_run_as_they_stand(path, reader, tmp_path, monkeypatch, capsys):
    shutil.copytree(reader, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMCORE_TABLES", str(tmp_path / "tables"))
    over = ["--force"] * any(isinstance(one.type, Target) for one in LEAVES[path].params)
    for example in (one for one in examples(path) if not one.startswith(NOT_RUN)):
        words = shlex.split(example, comments=True)[1:]
        assert main([*words, *over]) == 0, f"{example}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_common_options_mean_the_same_everywhere(path):
    command = LEAVES[path]
    assert isinstance(command, Command)
    assert all(isinstance(one, Option | click.Argument) for one in command.params)
    named = {name for one in command.params for name in one.opts}
    assert {"--json", "-q", "-v"} <= named
    targets = [one for one in command.params if isinstance(one.type, Target)]
    assert ("--force" in named) == bool(targets)
    goes_on = command.name == "start"  # of a sweep: its folder is filled by several calls
    assert all(isinstance(one.type, Target) or goes_on for one in command.params if "-o" in one.opts)


def test_help_needs_none_of_the_heavy_libraries():
    """What makes help slow is importing them: NumPy alone takes longer than all of ours."""
    paths = [" ".join(path[1:]) for path in TREE]
    code = "import sys; from simcore.cli import main; [main([*line.split(), '--help']) for line in sys.argv[1:]];"
    code += "print([name for name in ('numpy', 'simpy', 'matplotlib', 'networkx', 'scipy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(("asked", "threads"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_a_process_of_its_own_calculates_in_one_thread_unless_asked(asked, threads):
    """OpenBLAS has one for each core, which waits in a loop at first: a tenth of a second on two cores."""
    code = (
        "import os, sys; sys.argv[1:] = ['--version']; from simcore.cli import main; assert 'numpy' not in sys.modules;"
    )
    code += "main(); print(os.environ['OPENBLAS_NUM_THREADS'])"
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | asked
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == threads


def test_a_kind_that_the_table_of_commands_does_not_know_is_an_error():
    with pytest.raises(ValueError, match="'cuont' of 'npus' is no kind"):
        _parameter("", [], "--npus", "cuont!", "How many.")


def test_what_options_of_other_tools_are_called_here_are_options():
    there = {name for command in LEAVES.values() for one in command.params for name in one.opts}
    rows = table(peers.__file__, "peers_options.txt")
    assert [row for row in rows if len(row) != 2 or not there.issuperset(row[1].split())] == []
    assert len({theirs for theirs, _ in rows}) == len(rows)


def test_the_words_of_a_plan_that_the_help_shows_are_those_that_are_taken():
    shown = {str(one.name): str(one.metavar).split("|") for one in options_of("plan") if one.metavar}
    assert shown == {name: list(names) for name, names in CHOICES.items()}


def test_choices_of_the_table_are_those_of_the_code():
    choices = {(path[1:], one.name): one.type.choices for path, command in LEAVES.items() for one in command.params
               if isinstance(one.type, click.Choice)}  # fmt: skip
    kinds = tuple(map(str, CollectiveKind))
    assert choices[("cost", "scaling"), "chip"] == tuple(CHIPS["scaling"])
    assert choices[("cost", "simple"), "variant"] == get_args(Variant)
    assert choices[("generate", "collective"), "kind"] == kinds
    assert choices[("generate", "schedule"), "kind"] == kinds[: kinds.index("barrier")]
    assert {choices[("generate", name), "frame"] for name in FRAMES} == {(frame,) for frame in FRAMES.values()}
    assert ", ".join(categories()) in " ".join(shown(("simcore", "replay")))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell, monkeypatch, capsys):
    monkeypatch.setenv("_SIMCORE_COMPLETE", f"{shell}_source")
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert "_SIMCORE_COMPLETE" in capsys.readouterr().out


def completed(words: str, monkeypatch, capsys) -> list[str]:
    """What bash offers for the last of the words."""
    monkeypatch.setenv("_SIMCORE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit, match="0"):
        main([])
    return [line.removeprefix("plain,") for line in capsys.readouterr().out.splitlines()]


def test_names_of_shipped_examples_are_completed(monkeypatch, capsys):
    assert completed("simcore run --topology torus", monkeypatch, capsys) == ["torus_4x4x4"]


@pytest.mark.parametrize("path", [path for path in TREE if path not in LEAVES], ids=" ".join)
def test_commands_are_completed_from_none_of_their_letters_on(path, monkeypatch, capsys):
    names = TREE[path].list_commands(click.Context(TREE[path], info_name=path[-1]))
    assert completed(" ".join((*path, "")), monkeypatch, capsys) == names
    assert names[-1] in completed(" ".join((*path, names[-1][:2])), monkeypatch, capsys)


def test_a_dialect_goes_before_what_a_header_tells_and_the_help_says_so(capsys, tmp_path):
    """An all-gather of 8 MB on 8 ranks: 1 MB from each, in SimAI's dialect; from each all 8 in ASTRA-sim's."""
    text = tmp_path / "gathered.txt"
    header = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 8"
    row = "x -1 0 ALLGATHER 8000000 0 NONE 0 0 NONE 0 0"
    text.write_text(f"{header} checkpoints: 0 checkpoint_initiates: 0\n1\n{row}\n")
    times = []
    for words in ((), ("--dialect", "simai"), ("--dialect", "astra-sim")):
        assert main(["run", "--workload", str(text), "--topology", "ring8", "--json", *words]) == 0
        times.append(json.loads(capsys.readouterr().out)["time_ns"])
    assert times[0] == times[1] < times[2] / 7
    (dialect,) = [one for one in TREE["simcore", "run"].params if one.name == "dialect"]
    assert "default: what a text's header tells" in dialect.help
