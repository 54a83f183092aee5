"""`simcore run`: simulate a workload on a topology and say where the time went."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from simcore.cli import run_config
from simcore.cli.command import emit, warn
from simcore.cli.kinds import forced
from simcore.errors import InputError
from simcore.options import RunOptions, SimaiOptions

if TYPE_CHECKING:
    from simcore.report.document import ReportDocument
    from simcore.timeline.events import Timeline


CLOSED_FORMS = {each.name for each in fields(SimaiOptions)}


def command(
    jobs: str | None,
    workload: str | None,
    topology: str | None,
    system: str | None,
    output: str | None,
    timeline: tuple[str, ...],
    links: tuple[str, ...],
    ranks: str | None,
    window: str | None,
    iteration: int | None,
    **options: Any,
) -> None:
    """Simulate a workload on a topology and say where the time went."""
    given = {name: value for name, value in options.items() if value not in (None, (), False)}
    if jobs or not workload:
        _several(jobs, topology, system, given, timeline, (ranks, window))
        return
    if given.get("profile") in SimaiOptions.profiles:
        from simcore.cost.simai.report import estimate

        simulated = {"topology": topology, "system": system, "output": output, "ranks": ranks, "window": window}
        written = {"timeline": timeline or None, "links": links or None, "iteration": iteration}
        closed = estimate(workload, given | simulated | written)
        emit(closed.to_dict(), lambda: str(closed))
        return
    _refuse(CLOSED_FORMS, "belongs to SimAI's closed forms", "--profile simai-1.6")
    if not (timeline or output):
        _refuse({"ranks", "window", "iteration"}, "chooses what a timeline shows", "--timeline FILE or -o DIR")
    asked = RunOptions.of(given | {"link_times": bool(output or timeline)})
    if timeline or output:  # what they would refuse is said before the run
        from simcore.report.selection import parse_selection

        selection = parse_selection(ranks, window, iteration)
    from simcore.api import play

    report = play(workload, topology, system, asked)
    left_out: list[str] = []
    if timeline or output or links:
        from simcore.report import artefacts
    for path in links:
        artefacts.write_links(report, path)
    for path in timeline:
        left_out += [f"{path}: {text}" for text in artefacts.write_timeline(report, path, selection)]
    if output:
        inputs = {"workload": workload, "topology": topology, "system": system}
        more = {"run.yaml": run_config.text_of(inputs, asked, report)}
        left_out += artefacts.write_directory(report, output, force=forced(), selection=selection, more=more)
    for warning in (*report.warnings, *left_out):
        warn(warning)
    document = report.to_dict()
    emit(document, lambda: _text(document, report.timeline))


def _several(
    jobs: str | None,
    topology: str | None,
    system: str | None,
    given: dict[str, Any],
    timelines: tuple[str, ...],
    shown_part: tuple[str | None, str | None],
) -> None:
    """Several jobs on one network, from a file of them."""
    if jobs is None:
        raise InputError.at("--workload", "there is nothing to run", expected="--workload W, or a file of jobs")
    others = {"output", "links", "iteration", "workload"} | CLOSED_FORMS
    _refuse(others, "does not go with a file of jobs", "the file alone, or --workload W")
    from simcore.cli import run_jobs
    from simcore.report import artefacts
    from simcore.report.selection import parse_selection

    selection = parse_selection(*shown_part, None)
    shown, document, report = run_jobs.run(jobs, topology, system, RunOptions.of(given))
    for path in timelines:
        for left_out in artefacts.write_timeline(report, path, selection):
            warn(f"{path}: {left_out}")
    emit(document, shown)


def _text(document: ReportDocument, timeline: Timeline) -> str:
    """The report for this terminal."""
    from simcore.report import text
    from simcore.timeline.breakdown import operation_totals

    width, colour = text.terminal_width(sys.stdout), text.use_colour(sys.stdout)
    return text.render(document, operations=operation_totals(timeline), width=width, colour=colour)


def _refuse(names: set[str], message: str, expected: str) -> None:
    """InputError for an option of these that was typed."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.params.get(str(parameter.name)) not in (None, ()):
            raise InputError.at(parameter.opts[0], message, expected=expected)
