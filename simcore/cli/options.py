"""The options of commands that have many: a row of `options.txt` each."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from simcore.cli.command import Named, Option
from simcore.cli.numbers import KINDS, Finite, Whole

KIND = re.compile(r"^(\S+?)(\*?)(!?)(?: <(.+)>)?(?: ([=~])(.*))?$")
RANGE = re.compile(r"([\d.e-]+)\.\.([\d.e]*)(f?)")
OF_FIELDS = {"int": "count", "bool": "flag"}


def options_of(section: str, *shapes: type, **more: click.ParamType[Any] | Mapping[str, Any]) -> list[click.Option]:
    """The options of a section of the table, in its order.

    Parameters
    ----------
    section : str
        What stands in brackets above the rows.
    shapes : dataclasses
        Where rows of kind `-` find the type and the default of the field that they set.
    more : by name of the parameter
        The type of an option, or whatever else click is to know of it.

    Examples
    --------
    >>> [option.opts for option in options_of("cost failures")][:2]
    [['--nodes'], ['--mtbf']]
    """
    known = {field.name: field for shape in shapes for field in fields(shape)}
    made: list[click.Option] = []
    for group, names, kind, text in _sections()[section]:
        bare = [name for name in names if not name.startswith("-")]
        name = (bare or [name[2:].replace("-", "_") for name in names if name.startswith("--")])[0]
        about = _of_field(known[name]) if kind == "-" else _about(name, kind)
        own = more.get(name, {})
        about |= own if isinstance(own, Mapping) else {"type": own}
        made.append(Option(names, group=group, help=text or None, **about))
    return made


@cache
def _sections() -> dict[str, list[tuple[str, list[str], str, str]]]:
    """Section -> group, names, kind and help of its rows."""
    found, section, group = defaultdict[str, list[tuple[str, list[str], str, str]]](list), "", ""
    for line in Path(__file__).with_name("options.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section, group = line.strip("[]"), ""
        elif line.startswith("= "):
            group = line[2:]
        elif section and line:
            names, kind, text = (*re.split(r"  +", line, maxsplit=2), "")[:3]
            found[section].append((group, names.split(), kind, text))
    return found


def _of_field(field: Field[Any]) -> dict[str, Any]:
    """An option with the type and the default of a field."""
    about = _about(field.name, OF_FIELDS.get(str(field.type), "positive"))
    default = None if field.default is MISSING else field.default
    return about | ({} if default in (None, False) else {"default": default, "show_default": True})


def _about(name: str, text: str) -> dict[str, Any]:
    """What click is told of an option of a kind; see the head of the table."""
    kind, many, must, metavar, sign, default = KIND.findall(text)[0]
    about: dict[str, Any] = {"metavar": metavar or None, "multiple": bool(many), "required": bool(must)}
    about |= {"default": default, "show_default": sign == "="} if sign else {}
    if kind in ("flag", "switch"):
        return about | {"is_flag": True} | ({"default": None} if kind == "switch" else {})
    return about | {"type": Named(partial(_words, name)) if kind == "word" else _type(kind)}


def _type(kind: str) -> click.ParamType[Any]:
    if found := RANGE.fullmatch(kind):
        low, high, real = found.groups()
        most = float(high) if high else None
        return Finite(float(low), most) if real else Whole(int(low), None if most is None else int(most))
    return click.Choice([one for one in kind.split(",") if one]) if "," in kind else KINDS[kind]


def _words(name: str) -> tuple[str, ...]:
    """What a plan may say there."""
    from simcore.cost.words import CHOICES

    return tuple(CHOICES[name])
