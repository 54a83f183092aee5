"""simcore replay: real profiler traces against their measured steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from simcore.cli.command import Command, Option, Target
from simcore.replay.kinds import categories

__all__ = ["command"]

ASSIGNMENT = re.compile(r"[a-z_]+=[\w-]+")


def _read(reader: str) -> Callable[..., Any]:
    """What reads an option's values, looked up when a command runs, not for the help."""

    def callback(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> object:
        return getattr(import_module("simcore.cli.replay_run"), reader)(values)

    return callback


class _Assignments(Command):
    """A command whose --set takes several assignments at once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put --set before every further NAME=VALUE behind one that is no file."""
        spread: list[str] = []
        for word in args:
            assigns = ASSIGNMENT.fullmatch(word) and not Path(word).exists()
            follows = assigns and len(spread) > 1 and spread[-2] == "--set"
            spread += ["--set", word] if follows else [word]
        return super().parse_args(ctx, spread)


_what_if, _without = partial(Option, group="What if"), partial(Option, group="Dependencies", is_flag=True)
OPTIONS = (
    Option(["--host", "hosts"], multiple=True, metavar="ET", group="Input",
           help="PyTorch's host execution trace of the same run; found by itself among TRACE."),
    Option(["--tokens"], metavar="N", type=click.IntRange(0), default=0, group="Input",
           help="Tokens of a recorded step: tokens/s are told."),
    _without(["--no-interstream"], help="Leave out waits between streams."),
    _without(["--no-sync"], help="Leave out waits of the host for the device, the launch queue included."),
    _without(["--no-gaps"], help="Leave out host time in which nothing was recorded."),
    _without(["--no-coupling"], help="Let no rank wait for another one in a collective."),
    _without(["--no-residual"], help="Leave out delays that no dependency explains."),
    _without(["--ablations", "with_ablations"], help="The error without each kind of dependency."),
    _what_if(["--scale", "scales"], multiple=True, callback=_read("scales"), metavar="NAME=FACTOR",
             help="Durations of tasks by name (a regular expression; 0 removes them and their launches) or category "
             f"({', '.join(categories())}), of the host (host, launches, loader; host@0-3=2 on some ranks), "
             "synchronisation=0."),
    _what_if(["--fuse", "fused"], multiple=True, callback=_read("fused"), metavar="REGEX",
             help="Neighbours as one task."),
    _what_if(["--cuda-graphs"], is_flag=True, help="One launch in place of many."),
    _what_if(["--straggler", "stragglers"], multiple=True, callback=_read("stragglers"), metavar="RANKS=FACTOR",
             help="Slower ranks."),
    _what_if(["--overlap"], type=click.Choice(["off", "full"]),
             help="Communication never, or wherever streams allow it, beside computation."),
    _what_if(["--set", "assignments"], multiple=True, callback=_read("assignments"), metavar="NAME=VALUE",
             help="Other data or tensor parallel degree (dp, tp), number of layers, hidden or feed-forward size "
             "(ffn); with --topology another pipeline: pp, vpp, micro_batches, schedule."),
    _what_if(["--group", "groups"], multiple=True, callback=_read("groups"), metavar="ROLE=REGEX",
             help="Which process group is data or tensor parallel (dp, tp), by its description or ranks."),
    _what_if(["--topology"], metavar="T", help="The interconnect of a topology file."),
    _what_if(["--system"], metavar="S", help="System file of that interconnect."),
    _what_if(["--recorded-topology"], metavar="T",
             help="The interconnect of the recording; times change by the ratio."),
    _what_if(["--recorded-system"], metavar="S", help="System file of the recorded interconnect."),
    Option(["-o", "--output"], metavar="DIR", type=Target(folder=True), group="Output",
           help="Write replay.json and the timelines of every rank (.png .html .json .pftrace.gz)."),
    Option(["--export-chakra", "chakra"], metavar="DIR", type=Target(folder=True), group="Output",
           help="Write the step as DIR/step.RANK.et for simcore run."),
    Option(["--export-text", "text"], metavar="FILE", type=Target(), group="Output",
           help="Write the step as a workload text."),
)  # fmt: skip


@click.command(
    cls=_Assignments,
    params=[click.Argument(["traces"], nargs=-1, required=True, metavar="TRACE..."), *OPTIONS],
)
def command(**given: Any) -> None:
    """Replay PyTorch profiler traces from their dependencies and compare with the measured steps.

    TRACE is a Kineto file (.json, .json.gz), an archive or a folder of the ranks of one job; several are ranks too.

    \b
    simcore replay rank0.json.gz rank1.json.gz
    simcore replay kineto.json.gz --host execution_trace.json.gz
    simcore replay traces/ --scale 'gemm=0.5' --no-residual
    simcore replay traces/ --straggler 0=1.5 -o replayed/
    simcore replay traces/ --set dp=8 hidden=8192 --topology cluster.yml
    simcore replay traces/ --set pp=4 schedule=zb-h1 --topology cluster.yml
    """
    from simcore.cli.replay_run import Asked, run

    run(Asked(**given))
