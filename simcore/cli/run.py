"""`simcore run`: simulate a workload on a topology and say where the time went."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import click

from simcore import __version__, documents
from simcore.api import closed_forms, play
from simcore.cli.command import emit, warn
from simcore.cli.kinds import forced
from simcore.documents import Node
from simcore.errors import InputError, Problems
from simcore.options import RunOptions, SimaiOptions
from simcore.report import artefacts
from simcore.report.model import Report
from simcore.report.text import render, terminal_width, use_colour
from simcore.report.timelines.selection import Selection, parse_selection
from simcore.timeline.breakdown import operation_totals

SCHEMA = "simcore.run/1"
CLOSED_FORMS = {each.name for each in fields(SimaiOptions)}


def command(
    jobs: str | None, workload: str | None, topology: str | None, system: str | None, output: str | None,
    timeline: tuple[str, ...], links: tuple[str, ...], ranks: str | None, window: str | None, iteration: int | None,
    **options: Any,
) -> None:  # fmt: skip
    """Simulate a workload on a topology and say where the time went."""
    given = {name: value for name, value in options.items() if value not in (None, (), False)}
    if jobs or not workload:
        _several(jobs, topology, system, given, timeline, output, (ranks, window))
        return
    if given.get("profile") in SimaiOptions.profiles:
        simulated = {"topology": topology, "system": system, "output": output, "ranks": ranks, "window": window}
        written = {"timeline": timeline or None, "links": links or None, "iteration": iteration}
        closed = closed_forms(workload, given | simulated | written)
        emit(closed.to_dict(), lambda: str(closed))
        return
    _refuse(CLOSED_FORMS, "belongs to SimAI's closed forms", "--profile simai-1.6")
    asked = RunOptions.of(given | {"link_times": bool(output or timeline)})
    selection = parse_selection(ranks, window, iteration)  # what it would refuse is said before the run
    report = play(workload, topology, system, asked)
    for path in links:
        artefacts.write_links(report, path)
    inputs = {"workload": workload, "topology": topology, "system": system}
    _write(report, timeline, output, selection, {"run.yaml": _configuration(inputs, asked, report)})
    document, width, colour = report.to_dict(), terminal_width(sys.stdout), use_colour(sys.stdout)
    emit(document, lambda: render(document, operations=operation_totals(report.timeline), width=width, colour=colour))


def _several(
    jobs: str | None, topology: str | None, system: str | None, given: dict[str, Any], timelines: tuple[str, ...],
    output: str | None, shown_part: tuple[str | None, str | None],
) -> None:  # fmt: skip
    """Several jobs on one network, from a file of them."""
    if jobs is None:
        raise InputError.at("--workload", "there is nothing to run", expected="--workload W, or a file of jobs")
    others = {"links", "iteration", "workload"} | CLOSED_FORMS
    _refuse(others, "does not go with a file of jobs", "the file alone, or --workload W")
    from simcore.jobs import play_jobs

    selection = parse_selection(*shown_part, None)
    asked = RunOptions.of(given | {"link_times": bool(output or timelines)})
    found = play_jobs(jobs, topology, system, asked)
    document, shown, report = found.to_dict(), found.render(), found.report
    selection = replace(selection, ranks=selection.ranks or tuple(place[0] for place in found.runs.places))
    more = {"jobs.txt": shown + "\n", "jobs.json": json.dumps(document, indent=1) + "\n"}
    more["run.yaml"] = _configuration({"jobs": jobs, "topology": topology, "system": system}, asked, report)
    _write(report, timelines, output, selection, more)
    emit(document, shown)


def _write(
    report: Report, timelines: tuple[str, ...], output: str | None, selection: Selection, more: dict[str, str]
) -> None:
    """Timelines, and a folder with `more` files in it; warns of what the run and they leave out."""
    left_out = [f"{path}: {text}" for path in timelines for text in artefacts.write_timeline(report, path, selection)]
    if output:
        left_out += artefacts.write_directory(report, output, force=forced(), selection=selection, more=more)
    for warning in (*report.warnings, *left_out):
        warn(warning)


def _refuse(names: set[str], message: str, expected: str) -> None:
    """InputError for an option of these that was typed."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.params.get(str(parameter.name)) not in (None, ()):
            raise InputError.at(parameter.opts[0], message, expected=expected)


def _configuration(inputs: Mapping[str, str | None], asked: RunOptions, report: Report) -> str:
    """The resolved configuration and where it came from."""
    options = dict(inputs) | {each.name: getattr(asked, each.name) for each in fields(RunOptions)}
    given = {name: value for name, value in sorted(options.items()) if value not in (None, "", ())}
    files = [{"role": entry.role, "path": entry.path, "sha256": entry.sha256} for entry in report.inputs]
    lines = [f"schema: {SCHEMA}", "options:", *(f"  {name}: {json.dumps(value)}" for name, value in given.items())]
    command = " ".join(map(shlex.quote, ["simcore", *sys.argv[1:]]))
    lines += ["provenance:", f"  version: {json.dumps(__version__)}", f"  command: {json.dumps(command)}", "  inputs:"]
    return "\n".join([*lines, *(f"  - {json.dumps(entry)}" for entry in files)]) + "\n"


def load(path: str | None) -> None:
    """Take the options of a run.yaml as defaults: what the command line says goes first."""
    if not path:
        return
    context = click.get_current_context()
    asked = [each.name for each in fields(RunOptions)]
    taken = {  # no file is written that the command does not name
        str(known.name): known
        for known in context.command.params
        if known.name in asked or (getattr(known, "group", "") != "Output" and not known.is_eager)
    }
    names = (*taken, *asked)
    with Problems() as problems:
        root = documents.read(path, problems)
        root.keys(required=("options",), optional=("schema", "provenance"))
        if "options" in root:
            root["options"].keys(optional=names)
            found = {name: node for name, node in root["options"].mapping() if name in names}
            given = {name: node.value for name, node in found.items() if _fits(context, taken.get(name), node)}
            context.default_map = {**(context.default_map or {}), **given}
            context.meta["simcore.config"] = root["options"].items


def _fits(context: click.Context, parameter: click.Parameter | None, node: Node) -> bool:
    """Whether a value is one that the option takes; otherwise its place is noted."""
    try:
        if any(node.name == each.name for each in fields(RunOptions)):
            RunOptions.read(node.name, node.value)
        elif not isinstance(node.value, str | int | float) or parameter is None:
            node.problem(f"{node.name} must be a single value")
            return False
        else:
            parameter.type_cast_value(context, node.value)
    except InputError as error:
        node.problem(error.problems[0].message, expected=error.problems[0].expected)
    return parameter is not None
