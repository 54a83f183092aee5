"""Every verb's help shows examples, and their options exist."""

import shlex

import click
import pytest

from simcore.cli import cli, main


def leaves(command: click.Command, path: tuple[str, ...]):
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command, info_name=path[-1])
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found
        yield from leaves(found, (*path, name))


LEAVES = dict(leaves(cli, ("simcore",)))


def examples(path: tuple[str, ...]) -> list[str]:
    with click.Context(LEAVES[path], info_name=path[-1]) as context:
        shown = LEAVES[path].get_help(context)
    return [line.strip() for line in shown.splitlines() if line.strip().startswith(" ".join(path[:2]) + " ")]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_verb_shows_an_example(path):
    assert examples(path)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_options_of_the_examples_exist(path):
    for example in examples(path):
        words = shlex.split(example)
        lengths = [length for length in range(len(words), 0, -1) if tuple(words[:length]) in LEAVES]
        named = tuple(words[: lengths[0]]) if lengths else path  # `sweep start` may be left out
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
