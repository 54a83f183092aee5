"""simcore replay: real profiler traces against their measured steps."""

from __future__ import annotations

import re
from pathlib import Path

import click

from simcore.replay.export import write
from simcore.replay.report import to_dict, to_text
from simcore.replay.run import Changes
from simcore.replay.session import Scale, replay_traces
from simcore.report.document import encode
from simcore.workload.kineto import read_ranks

__all__ = ["command"]


def _scale(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[Scale, ...]:
    """REGEX=FACTOR, split at the last equals sign."""
    return tuple(_parse_scale(value) for value in values)


def _parse_scale(value: str) -> Scale:
    pattern, separator, factor = value.rpartition("=")
    try:
        scale = Scale(re.compile(pattern), float(factor))
    except (re.error, ValueError) as error:
        raise click.BadParameter(f"expected REGEX=FACTOR, for example 'gemm=0.5', found {value!r}: {error}") from error
    if not (separator and pattern and 0 <= scale.factor < float("inf")):
        raise click.BadParameter(f"expected REGEX=FACTOR with a factor of at least 0, found {value!r}")
    return scale


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...", type=click.Path())
@click.option("--no-interstream", is_flag=True, help="Leave out waits between streams.")
@click.option("--no-sync", is_flag=True, help="Leave out waits of the host for the device, the launch queue included.")
@click.option("--no-gaps", is_flag=True, help="Leave out host time in which nothing was recorded.")
@click.option("--no-coupling", is_flag=True, help="Let no rank wait for another one in a collective.")
@click.option("--no-residual", is_flag=True, help="Leave out delays that no dependency explains.")
@click.option(
    "--scale", "scales", multiple=True, callback=_scale, metavar="REGEX=FACTOR", help="What if: task durations by name."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(), help="Write replay.json, timeline.png, timeline.json."
)
@click.option("--force", is_flag=True, help="Overwrite files in DIR.")
def command(
    traces: tuple[str, ...],
    no_interstream: bool,
    no_sync: bool,
    no_gaps: bool,
    no_coupling: bool,
    no_residual: bool,
    scales: tuple[Scale, ...],
    as_json: bool,
    output: str | None,
    force: bool,
) -> None:
    """Replay PyTorch profiler traces from their dependencies and compare with the measured steps.

    TRACE is a Kineto file (.json, .json.gz), an archive or a folder of the ranks of one job; several are ranks too.
    """
    changes = Changes(
        interstream=not no_interstream,
        sync=not no_sync,
        gaps=not no_gaps,
        coupling=not no_coupling,
        residual=not no_residual,
    )
    replay = replay_traces(read_ranks(traces), changes, scales)
    document = encode(to_dict(replay))
    if output is not None:
        write(replay, document, Path(output), force=force)
    click.echo(document if as_json else to_text(replay) + "\n", nl=False)
