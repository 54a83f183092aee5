"""run.yaml: what a run was given, with the provenance of its inputs; `--config` takes one back."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from simcore import __version__, documents
from simcore.documents import Node
from simcore.errors import Problems

if TYPE_CHECKING:
    from simcore.report.model import Report

__all__ = ["option", "text_of"]

SCHEMA = "simcore.run/1"


def text_of(arguments: Mapping[str, Any], report: Report) -> str:
    """The resolved configuration and where it came from."""
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in arguments.items()}
    given = {name: value for name, value in sorted(options.items()) if value not in (None, "", [])}
    inputs = [{"role": entry.role, "path": entry.path, "sha256": entry.sha256} for entry in report.inputs]
    lines = [f"schema: {SCHEMA}", "options:", *(f"  {name}: {json.dumps(value)}" for name, value in given.items())]
    command = " ".join(map(shlex.quote, ["simcore", *sys.argv[1:]]))
    lines += ["provenance:", f"  version: {json.dumps(__version__)}", f"  command: {json.dumps(command)}", "  inputs:"]
    lines += [f"  - {json.dumps(entry)}" for entry in inputs]
    return "\n".join(lines) + "\n"


def _load(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    """Take the options of a run.yaml as defaults: what the command line says goes first."""
    if not path:
        return
    names = [str(known.name) for known in context.command.params]
    with Problems() as problems:
        root = documents.read(path, problems)
        root.keys(required=("options",), optional=("schema", "provenance"))
        if "options" in root:
            root["options"].keys(optional=tuple(names))
            known = {str(known.name): known for known in context.command.params}
            given = {
                name: node.value for name, node in root["options"].mapping() if _fits(context, known.get(name), node)
            }
            context.default_map = {**(context.default_map or {}), **given}


def _fits(context: click.Context, parameter: click.Parameter | None, node: Node) -> bool:
    """Whether a value is one that the option takes; otherwise its place is noted."""
    value = node.value
    if parameter is None:
        return False
    try:
        if isinstance(value, dict) or (isinstance(value, list) and not parameter.multiple):
            raise ValueError(f"{parameter.opts[0]} takes a single value")  # noqa: TRY301 - one message for all
        if value is None or (getattr(parameter, "is_flag", False) and not isinstance(value, bool)):
            raise ValueError("expected true or false" if value is not None else "there is no value")  # noqa: TRY301
        parameter.type_cast_value(context, value)
    except (click.ClickException, TypeError, ValueError, OverflowError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        node.problem(message, expected=f"what {parameter.opts[0]} takes")
    return True


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The --config option."""
    text = "Options from a run.yaml; the command line goes first."
    return click.option("--config", metavar="F", is_eager=True, expose_value=False, callback=_load, help=text)(command)
