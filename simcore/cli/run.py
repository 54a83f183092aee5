"""`simcore run`: simulate a workload on a topology and say where the time went."""

from __future__ import annotations

import sys
from typing import Any

import click

from simcore import library
from simcore.cli import run_simai
from simcore.report.document import encode

__all__ = ["command"]

SIMAI_NAMES = {option.name for option in run_simai.OPTIONS}
SCALE = click.FloatRange(min=0, min_open=True)


@click.command(short_help="Simulate a workload on a topology.")
@click.option("--workload", required=True, metavar="W", help="Text workload, Chakra trace set, or a shipped name.")
@click.option("--topology", metavar="T", help="Topology file, or a shipped name.")
@click.option("--system", metavar="S", help="System file of ASTRA-sim 2.x (JSON, YAML) or 1.0 (key: value).")
@click.option("--profile", default="native", show_default=True, metavar="P", help="Timing rules.")
@click.option("--iterations", default=1, show_default=True, type=click.IntRange(min=1), help="Training iterations.")
@click.option("--network", default="", metavar="M", help="congestion-free, congested or fair; default: the profile's.")
@click.option(
    "--queues-per-dim", default=1, show_default=True, type=click.IntRange(min=1), help="Queues per dimension."
)
@click.option("--compute-scale", default=1.0, type=SCALE, help="Factor on compute times.")
@click.option("--comm-scale", default=1.0, type=SCALE, help="Factor on message sizes.")
@click.option("--injection-scale", default=1.0, type=SCALE, help="Factor on endpoint delays.")
@click.option("--rendezvous", is_flag=True, help="Every message asks before it is sent.")
@click.option("--dialect", type=click.Choice(["astra-sim", "simai"]), help="Dialect of a text workload.")
@click.option("--comm-groups", metavar="F", help="Communicators of a trace set (ASTRA-sim 2.x JSON).")
@click.option("--remote-memory", metavar="F", help="Remote memory (ASTRA-sim 2.x JSON).")
@click.option("--straggler", multiple=True, metavar="RANKS=FACTOR", help="Slow NPUs down, for example 0-3,7=1.5.")
@click.option("--no-fold", is_flag=True, help="One process for every NPU; the answer is the same.")
@click.option("--seed", default=0, type=int, help="Seed of everything random.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-o", "--output", metavar="DIR", help="Write the report and all its artefacts to a folder.")
@click.option("--timeline", multiple=True, metavar="FILE", help=".png .svg .html .json(.gz) .pftrace(.gz)")
@click.option("--force", is_flag=True, help="Overwrite what is there.")
def command(as_json: bool, output: str | None, timeline: tuple[str, ...], force: bool, **options: Any) -> None:
    """Simulate a workload on a topology and say where the time went.

    \b
    simcore run --workload dlrm --topology ring64
    simcore run --workload trace.txt --topology net.yaml --json
    simcore run --workload dlrm --topology ring64 --timeline dlrm.png
    """
    if options["profile"] in run_simai.PROFILES:
        _closed_forms(as_json, options)
        return
    from simcore.api import run

    report = run(**{name: value for name, value in options.items() if name not in SIMAI_NAMES})
    if as_json:
        click.echo(report.to_json(), nl=False)
    else:
        from simcore.report import text

        width = text.terminal_width(sys.stdout)
        click.echo(text.render(report.to_dict(), width=width, colour=text.use_colour(sys.stdout)), nl=False)


def _closed_forms(as_json: bool, options: dict[str, Any]) -> None:
    """SimAI's closed forms: nothing is simulated."""
    path = library.resolve(options["workload"], "workloads")
    shown, document = run_simai.run(path, options["profile"], options)
    click.echo(encode(document) if as_json else shown, nl=False)


command.params.extend(run_simai.OPTIONS)
