"""Every verb's help shows examples, and their options exist."""

import shlex

import click
import pytest

from simcore.cli import cli, main


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
