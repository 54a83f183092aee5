"""simcore replay: real profiler traces against their measured steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from simcore.cli.command import Command, Target, emit
from simcore.cli.options import options_of
from simcore.replay.kinds import categories

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


OPTIONS = options_of(
    "replay",
    **{name: {"callback": _read(name)} for name in ("scales", "fused", "stragglers", "assignments", "groups")},
    output=Target(folder=True), chakra=Target(folder=True), text=Target(),
)  # fmt: skip
SCALE = next(option for option in OPTIONS if option.name == "scales")
SCALE.help = str(SCALE.help).format(categories=", ".join(categories()))


@click.command(
    cls=_Assignments,
    params=[click.Argument(["traces"], nargs=-1, required=True, metavar="TRACE..."), *OPTIONS],
)
def command(**given: Any) -> None:
    """Replay PyTorch profiler traces from their dependencies and compare with the measured steps.

    TRACE is a Kineto file (.json, .json.gz), an archive or a folder of the ranks of one job; several are ranks too.

    \b
    simcore replay rank0.json.gz rank1.json.gz
    simcore replay kineto.json.gz --host execution_trace.json
    simcore replay traces/ --scale 'gemm=0.5' --no-residual
    simcore replay traces/ --straggler 0=1.5 -o replayed/
    simcore replay traces/ --set dp=8 hidden=8192 --topology cluster.yml
    simcore replay traces/ --set pp=4 schedule=zb-h1 --topology cluster.yml
    """
    from simcore.cli.replay_run import Asked, run
    from simcore.replay.run import Changes

    kept = {name: not given.pop(f"no_{name}") for name in Changes.__struct_fields__}
    emit(*run(Asked(changes=Changes(**kept), **given)))
