"""Specifications: a generator's options as a YAML file, made into a step when it is run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path

from simcore.documents import Node, read
from simcore.errors import InputError, Problem, Problems
from simcore.generate.aicb.options import FRAMES, Options
from simcore.generate.aicb.presets import preset
from simcore.generate.build import Asked, Extra


def write(asked: Asked) -> str:
    """The file of what was given; everything else keeps its default."""
    names = {frame: name for name, frame in FRAMES.items()}
    values = asdict(asked.options) | asdict(asked.extra)
    chosen = {name: values[name] for name in sorted(asked.given)}
    if asked.size:
        chosen = {"model_size": asked.size} | chosen
    lines = [f"generator: {names[asked.options.frame]}", "options:"]
    return "\n".join([*lines, *(f"  {name}: {json.dumps(value)}" for name, value in chosen.items()), ""])


@contextmanager
def asked(path: str | Path, npu: str | None = None) -> Iterator[Asked]:
    """What a specification asks for, for accelerator `npu` if one is named.
    InputError says which key is wrong and where, also for what comes up while the step is made.
    """
    with Problems() as problems:
        document = read(path, problems)
        document.keys(required=("generator", "options"))
        frame, values = _read(document)
    values |= {"gpu_type": npu} if npu else {}
    size, own = values.pop("model_size", None), {field.name for field in fields(Options)}
    try:
        chosen: dict[str, object] = dict(preset(frame, str(size))) if size else {}
        chosen |= {name: value for name, value in values.items() if name in own}
        extra = Extra(**{name: value for name, value in values.items() if name not in own})  # type: ignore[arg-type]
        options = Options(frame=frame, **chosen)  # type: ignore[arg-type]
        yield Asked(options, extra, set(values), str(size) if size else None)
    except InputError as error:
        raise InputError([_placed(problem, document) for problem in error.problems]) from error


def _placed(problem: Problem, document: Node) -> Problem:
    """A problem of an option, at the key that gives it; of an option that is not given, at the list of options."""
    if problem.location.line:
        return problem
    options = document["options"]
    named = problem.location.file.removeprefix("--").replace("-", "_")
    at = next((node for key, node in options.mapping() if named in (key, str(node.value))), options)
    name = at.name if at is not options else named
    return replace(problem, location=at.location, message=f"{name}: {problem.message}", field=name)


def _read(document: Node) -> tuple[str, dict[str, object]]:
    """Framework and options; kinds are checked against the options' types."""
    if "generator" not in document or "options" not in document:
        return "", {}
    frame = document["generator"].choice(FRAMES)
    kinds = {field.name: str(field.type) for owner in (Options, Extra) for field in fields(owner)}
    kinds = {name: kind for name, kind in kinds.items() if name != "frame"} | {"model_size": "str"}
    document["options"].keys(optional=tuple(kinds))
    values = {name: _value(node, kinds[name]) for name, node in document["options"].mapping() if name in kinds}
    return str(frame), values


def _value(node: Node, kind: str) -> object:
    if kind.startswith("bool"):
        return node.flag()
    if kind.startswith("int"):
        return node.integer(-1)
    return node.number() if kind.startswith("float") else str(node.value)
