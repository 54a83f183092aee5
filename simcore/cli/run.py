"""`simcore run`: simulate a workload on a topology and say where the time went."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simcore import library
from simcore.cli import run_config, run_simai
from simcore.cli.completion import shipped
from simcore.cli.numbers import COUNT, POSITIVE
from simcore.cli.progress import progress
from simcore.errors import InputError
from simcore.report.document import encode

if TYPE_CHECKING:
    from simcore.report.model import Report

__all__ = ["command"]

CLOSED_NAMES = {"workload", "profile", "dialect", "as_json", "quiet", "force"}
SIMAI_NAMES = {str(option.name) for option in run_simai.OPTIONS}


@click.command(short_help="Simulate a workload on a topology.")
@click.option(
    "--workload",
    required=True,
    metavar="W",
    help="Text workload, trace set, shipped name, or - for stdin.",
    shell_complete=shipped("workloads"),
)
@click.option("--topology", metavar="T", help="Topology file, or a shipped name.", shell_complete=shipped("topologies"))
@click.option("--system", metavar="S", help="System file of ASTRA-sim 2.x (JSON, YAML) or 1.0 (key: value).")
@click.option("--profile", default="native", show_default=True, metavar="P", help="Timing rules.")
@click.option("--iterations", default=1, show_default=True, type=COUNT, help="Training iterations.")
@click.option("--network", default="", metavar="M", help="congestion-free, congested or fair; default: the profile's.")
@click.option("--queues-per-dim", default=1, show_default=True, type=COUNT, help="Queues of every dimension.")
@click.option("--compute-scale", default=1.0, type=POSITIVE, help="Factor on compute times.")
@click.option("--comm-scale", default=1.0, type=POSITIVE, help="Factor on message sizes.")
@click.option("--injection-scale", default=1.0, type=POSITIVE, help="Factor on endpoint delays.")
@click.option("--rendezvous", is_flag=True, help="Every message asks before it is sent.")
@click.option("--dialect", type=click.Choice(["astra-sim", "simai"]), help="Dialect of a text workload.")
@click.option("--comm-groups", metavar="F", help="Communicators of a trace set (ASTRA-sim 2.x JSON).")
@click.option("--remote-memory", metavar="F", help="Remote memory (ASTRA-sim 2.x JSON).")
@click.option("--straggler", multiple=True, metavar="RANKS=FACTOR", help="Slow NPUs down: 0-3,7=1.5 or dp=3:1.2.")
@click.option("--npu", metavar="NAME", help="Accelerator preset for computed durations: simcore list npus.")
@click.option(
    "--jitter", multiple=True, metavar="WHAT=DISTRIBUTION:WIDTH", help="compute=lognormal:0.02, links=normal:0.01"
)
@click.option("--seed", type=click.IntRange(0, 2**62), help="Of the jitter; default 0.")
@click.option("--runs", default=1, type=COUNT, help="With jitter: so many seeds, and mean, p5, p95 of their times.")
@click.option("--fault", multiple=True, metavar="FAULT", help="'link 3-4 x0.5 @ 1ms-2ms' or 'link 3-4 down @ 1ms-'")
@click.option("--no-fold", is_flag=True, help="One process for every NPU; the answer is the same.")
@click.option("--exact", default="", metavar="messages", help="Every message of every NPU: the slow check of all else.")
@click.option("--schedule", default="", metavar="NAME", help="gpipe 1f1b interleaved zb-h1 zb-v dualpipe")
@click.option("--what-would-help", is_flag=True, help="Run again with faster NPUs and links: what each would save.")
@click.option("--explain-profile", is_flag=True, help="Run again without each rule of the profile: what each adds.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-o", "--output", metavar="DIR", help="Write the report and all its artefacts to a folder.")
@click.option("--timeline", multiple=True, metavar="FILE", help=".png .svg .html .json(.gz) .pftrace(.gz) .tar(.gz)")
@click.option(
    "--links", multiple=True, metavar="FILE", help="Map of what links carried, .png .svg (mesh, torus, wafer)."
)
@click.option("--ranks", metavar="RANKS", help="NPUs that the timelines show, for example 0-3,7.")
@click.option("--window", metavar="BEGIN:END", help="Time that the timelines show, for example 1ms:2.5ms.")
@click.option("--iteration", type=click.IntRange(min=0), help="Iteration that the timelines show.")
@click.option("--force", is_flag=True, help="Overwrite what is there.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings on stderr.")
@run_config.option
def command(
    as_json: bool,
    output: str | None,
    timeline: tuple[str, ...],
    links: tuple[str, ...],
    ranks: str | None,
    window: str | None,
    iteration: int | None,
    force: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Simulate a workload on a topology and say where the time went.

    \b
    simcore run --workload dlrm --topology ring64
    simcore run --workload trace.txt --topology net.yaml --json
    simcore run --workload dlrm --topology ring64 --timeline dlrm.png -o results/
    simcore run --workload dlrm --topology torus_4x4x4 --what-would-help
    simcore run --workload dlrm --topology torus_4x4x4 --profile astra-sim-1.0 --explain-profile
    """
    if options["profile"] in run_simai.PROFILES:
        _closed_forms(as_json, options)
        return
    from simcore.report import artefacts
    from simcore.report.selection import parse_selection

    for path in timeline:
        artefacts.check_timeline(path)
    for path in links:
        artefacts.check_links(path)
    selection = parse_selection(ranks, window, iteration)
    arguments = {name: value for name, value in options.items() if name not in SIMAI_NAMES}
    with progress("simulating", quiet=quiet):
        from simcore.api import run

        report = run(**arguments, link_times=bool(output or timeline))
    for path in links:
        artefacts.write_links(report, path)
    left_out = [f"{path}: {text}" for path in timeline for text in artefacts.write_timeline(report, path, selection)]
    if output:
        left_out += artefacts.write_directory(report, output, force=force, selection=selection)
        run_config.write(Path(output) / "run.yaml", arguments, report)
    _print(report, as_json, () if quiet else (*report.warnings, *left_out))


def _print(report: Report, as_json: bool, warnings: tuple[str, ...]) -> None:
    """The answer on stdout, warnings on stderr."""
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if as_json:
        click.echo(report.to_json(), nl=False)
        return
    from simcore.report import text
    from simcore.timeline.breakdown import operation_totals

    width, colour = text.terminal_width(sys.stdout), text.use_colour(sys.stdout)
    operations = operation_totals(report.timeline)
    click.echo(text.render(report.to_dict(), operations=operations, width=width, colour=colour), nl=False)


def _closed_forms(as_json: bool, options: dict[str, Any]) -> None:
    """SimAI's closed forms: nothing is simulated, and what only a simulation knows is refused."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = str(parameter.name)
        given = context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
        if given and name not in SIMAI_NAMES | CLOSED_NAMES:
            message = f"profile {options['profile']} has closed forms and simulates nothing"
            raise InputError.at(parameter.opts[-1], message, expected="another profile", hint="see docs/simai.md")
    path = library.resolve(options["workload"], "workloads")
    shown, document = run_simai.run(path, options["profile"], options)
    click.echo(encode(document) if as_json else shown, nl=False)


command.params.extend(run_simai.OPTIONS)
