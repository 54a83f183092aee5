"""run.yaml: what a run was given, with the provenance of its inputs; `--config` takes one back."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING

import click

from simcore import __version__, documents
from simcore.documents import Node
from simcore.errors import InputError, Problems
from simcore.options import RunOptions

if TYPE_CHECKING:
    from simcore.report.model import Report

SCHEMA = "simcore.run/1"


def text_of(inputs: Mapping[str, str | None], asked: RunOptions, report: Report) -> str:
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
    taken = {str(known.name): known for known in context.command.params if getattr(known, "group", "") != "Output"}
    names = (*taken, *(each.name for each in fields(RunOptions)))  # no file is written that the command does not name
    with Problems() as problems:
        root = documents.read(path, problems)
        root.keys(required=("options",), optional=("schema", "provenance"))
        if "options" in root:
            root["options"].keys(optional=names)
            found = {name: node for name, node in root["options"].mapping() if name in names}
            given = {name: node.value for name, node in found.items() if _fits(context, taken.get(name), node)}
            context.default_map = {**(context.default_map or {}), **given}


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
    except click.ClickException as error:
        node.problem(error.format_message())
    return parameter is not None
