"""How far a long command is, on stderr."""

import io
import re
import sys
import time

import click
import pytest

import simcore
from simcore.cli import main
from simcore.cli import progress as shown
from simcore.cli.command import Command, note
from simcore.progress import meter, metered


class Terminal(io.StringIO):
    def isatty(self):
        return True


def lasting(monkeypatch, stream, meta, until):
    """A block, half of which is done, that ends once `until` was written."""
    for name in ("FIRST_S", "EVERY_S", "EVERY_LINE_S"):
        monkeypatch.setattr(shown, name, 0.001)
    monkeypatch.setattr(sys, "stderr", stream)

    def work():
        meter().tell = lambda: 0.5
        meter().hint = "take more of them"
        while until not in stream.getvalue():
            time.sleep(0.001)
        note("beside it")

    with click.Context(Command("run", callback=work), info_name="run") as context:
        context.meta.update(meta)
        context.command.invoke(context)
    return stream.getvalue()


def test_a_terminal_sees_share_and_time_left_and_then_nothing(monkeypatch):
    said = lasting(monkeypatch, Terminal(), {}, "50 %")
    assert re.search(re.escape(shown.CLEAR) + r"run: 50 %, \d:\d\d, about \d:\d\d left; take more of them", said)
    assert f"{shown.CLEAR}beside it\n" in said
    assert said.endswith(shown.CLEAR)


def test_a_file_sees_lines_when_asked_and_nothing_otherwise(monkeypatch):
    said = lasting(monkeypatch, io.StringIO(), {"simcore.verbose": True}, "50 %")
    assert all(re.fullmatch(r"run: (50 %, )?\d:\d\d.*|beside it", line) for line in said.splitlines())
    assert re.search(r"^run: 50 %", said, re.MULTILINE)
    assert lasting(monkeypatch, io.StringIO(), {}, "") == "beside it\n"
    assert not lasting(monkeypatch, Terminal(), {"simcore.quiet": True}, "")


@pytest.mark.parametrize("workload", ["dlrm", "gpt_175b_pipeline"])
def test_a_run_that_is_done_is_wholly_done(workload):
    """The pipeline has played all its cells; a loop has begun its last step."""
    with metered() as meter:
        simcore.run(workload, "pods_1024" if workload != "dlrm" else "ring8", iterations=2)
    assert 0.9 < meter.tell() <= 1


def test_what_is_printed_is_the_same_with_a_terminal_for_errors(monkeypatch, capsys):
    printed = []
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        assert main(["run", "--workload", "dlrm", "--topology", "ring8", "--json"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""
