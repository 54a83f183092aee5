"""Every verb's help shows examples, and their options exist."""

import re
import shlex
import subprocess
import sys

import click
import pytest

from simcore.cli import cli, main
from simcore.cli.command import Command, Option, Target
from simcore.cli.options import options_of
from simcore.cost.words import CHOICES


def tree(command: click.Command, path: tuple[str, ...]):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path[-1])
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found
            yield from tree(found, (*path, name))


TREE = dict(tree(cli, ("simcore",)))
LEAVES = {path: command for path, command in TREE.items() if not isinstance(command, click.Group)}


def shown(path: tuple[str, ...]) -> list[str]:
    with click.Context(TREE[path], info_name=path[-1], terminal_width=80) as context:
        return [line.strip() for line in TREE[path].get_help(context).splitlines()]


def examples(path: tuple[str, ...]) -> list[str]:
    return [line for line in shown(path) if line.startswith(" ".join(path[:2]) + " ")]


@pytest.mark.parametrize("path", TREE, ids=" ".join)
def test_every_verb_shows_an_example(path):
    assert examples(path)


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


MISSING = re.compile(
    r"no such file|cannot read|nothing to read|there (is|are) no|no report|no such folder", re.IGNORECASE
)
SUITES = "simcore validate"  # minutes, and tests of their own


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_examples_run_as_they_stand(path, tmp_path, monkeypatch, capsys):
    """Where an example names a file of the reader's, that file is all that it lacks."""
    monkeypatch.chdir(tmp_path)
    for example in (one for one in examples(path) if not one.startswith(SUITES)):
        status = main(shlex.split(example, comments=True)[1:])
        said = capsys.readouterr().err
        assert status == 0 or MISSING.search(said), f"{example}\n{said}"


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


def test_the_words_of_a_plan_that_the_help_shows_are_those_that_are_taken():
    shown = {str(one.name): str(one.metavar).split("|") for one in options_of("predict plan") if one.metavar}
    assert shown == {name: list(names) for name, names in CHOICES.items()}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell, monkeypatch, capsys):
    monkeypatch.setenv("_SIMCORE_COMPLETE", f"{shell}_source")
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert "_SIMCORE_COMPLETE" in capsys.readouterr().out


def test_names_of_shipped_examples_are_completed(monkeypatch, capsys):
    monkeypatch.setenv("_SIMCORE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "simcore run --topology torus")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert "plain,torus_4x4x4" in capsys.readouterr().out
