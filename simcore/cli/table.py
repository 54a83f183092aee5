"""The command line is a table: `commands.txt` says what commands are called, what they take and what runs them.

Modules that do the work are imported when a command runs, not for its help.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import click

from simcore.cli.command import Command, Group, Option
from simcore.cli.kinds import KINDS, Choice, Kind, Target, named, named_one
from simcore.options import flag, number, spelled, texts, whole

HEAD = re.compile(r"\[(.*)\](?: (\S+)(?:  (.*))?)?")
KIND = re.compile(r"^(\S+?)(\*[2+]?)?(!)?(\^)?(?:@(\S+))?(?: <([^>]+)>)?(?: &(\S+))?(?: ([=~?])(.*))?$")
RANGE = re.compile(r"([\d.e-]+)\.\.([\d.e]*)(f?)")
OF_FIELDS = {"int": "count", "bool": "flag"}


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of the table: what runs it, what it does, its help, where fields are, and (group, cells) of its rows."""

    runs: str
    short: str
    help: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    rows: list[tuple[str, list[str]]] = field(default_factory=list)


@cache
def _sections() -> dict[str, _Section]:
    found, group = dict[str, _Section](), ""
    for line in Path(__file__).with_name("commands.txt").read_text(encoding="utf-8").splitlines():
        if head := HEAD.fullmatch(line):
            section, group = found.setdefault(head[1], _Section(head[2] or "", head[3] or "")), ""
        elif line.startswith("= "):
            group = line[2:]
        elif line.startswith(("|", "$")):
            section.help.append(line)
        elif line.startswith("@"):
            module, _, names = line[2:].partition(":")
            section.shapes.extend(f"{module}:{name}" for name in names.split(","))
        elif line and line[0] != "#":
            section.rows.append((group, re.split(r"  +", line, maxsplit=2)))
    return found


@cache
def command(path: str) -> click.Command:
    """The command that some words call, `topology show`; the whole command line where there are none."""
    section, name = _sections()[path], path.rpartition(" ")[2] or None
    runs, text = section.runs.removeprefix("~"), "\n".join(_help(section.help))
    if runs.startswith(":"):
        words = [word for word in _sections() if _sections()[word].runs and word and word.rpartition(" ")[0] == path]
        within = {word.rpartition(" ")[2]: (_sections()[word].short, partial(command, word)) for word in words}
        return Group(name, within=within, usual=runs[1:], help=text, short_help=section.short, params=options_of(path))
    run = partial(_run, runs)
    about: dict[str, Any] = {"help": text, "short_help": section.short, "abbreviated": runs != section.runs}
    return Command(name, params=options_of(path), callback=run, **about)


def _run(place: str, /, **given: Any) -> object:
    return named(place)(**given)


def _help(lines: list[str]) -> Iterator[str]:
    """The help as click takes it: what stands behind \\b is not wrapped."""
    shows = False
    for line in lines:
        if line != "$":
            yield from ("", "\b") if line[0] == "$" and not shows else ()
            yield line[2:]
        shows = line[0] == "$" != line


def options_of(section: str) -> list[Any]:
    """The parameters of a section of the table, in its order.

    >>> [option.opts for option in options_of("cost failures")][:2]
    [['--nodes'], ['--mtbf']]
    """
    made: list[Any] = []
    for group, cells in _sections()[section].rows:
        if not cells[0].startswith("< "):
            made.append(_parameter(group, _sections()[section].shapes, *cells))
        elif ":" in cells[0]:
            made += _described(named(cells[0][2:]))
        else:
            made += options_of(cells[0][2:])
    return made


def _parameter(group: str, shapes: list[str], names: str, kind: str, text: str = "") -> click.Parameter:
    """What a row says; see the head of the table."""
    spellings = names.split()
    bare = [name for name in spellings if not name.startswith("-")]
    name = (bare or [name[2:].replace("-", "_") for name in spellings if name.startswith("--")])[0]
    what, many, must, eager, reader, metavar, needs, sign, default = KIND.findall(kind)[0]
    known = {each.name: each for shape in shapes for each in fields(named(shape))} if what == "-" or sign == "?" else {}
    if what == "-":
        what, usual = OF_FIELDS.get(str(known[name].type), "positive"), known[name].default
        must = must or usual is MISSING
        sign, default = ("", "") if usual in (MISSING, None, False) else ("=", usual)
    about: dict[str, Any] = {"metavar": metavar or None, "required": bool(must), "type": _type(name, what)}
    about |= {"default": default} if sign in ("=", "~") else {}
    if spellings == bare:
        return click.Argument(spellings, **about, nargs=-1 if many else 1)
    if sign == "?" and name in known and known[name].default not in (None, False):
        text += f" [default: {known[name].default}]"
    if what in ("flag", "switch"):
        about |= {"is_flag": True, "type": None} | ({"default": None} if what == "switch" else {})
        about |= {"default": True} if default == "on" else {}
    about |= {"show_default": True} if sign == "=" else {}
    about |= {"nargs": 2} if many == "*2" else {"multiple": bool(many), "greedy": many == "*+"}
    if reader:
        about["callback"] = lambda _context, _option, value: named(reader)(value)
    about |= {"is_eager": True, "expose_value": False} if eager else {}
    return Option(spellings, group=group, needs=needs, help=text or None, hidden=not text, **about)


def _type(name: str, kind: str) -> click.ParamType[Any] | None:
    if kind in KINDS or kind in ("flag", "switch"):
        return KINDS.get(kind)
    if found := RANGE.fullmatch(kind):
        low, high, real = found.groups()
        if real:
            return Kind(partial(number, least=float(low), most=float(high)))
        return Kind(partial(whole, least=int(low), most=int(high) if high else None), "N")
    if kind.startswith(">"):
        return Target(kind[1:])
    if "," in kind:
        return Choice([one for one in kind.split(",") if one])
    if kind == "word":
        return Kind(named_one(lambda: named("simcore.cost.words:CHOICES")[name]), "NAME")
    if not kind.startswith("of:"):
        raise ValueError(f"commands.txt: '{kind}' of '{name}' is no kind")
    return Kind(named_one(lambda: named(kind[3:])), "NAME")


def _described(options: Any) -> Iterator[Option]:
    """The options that a class of `simcore.options` describes; values are read there."""
    for each in fields(options):
        about = each.metadata
        kind = {"is_flag": True} if about["read"] is flag else {"metavar": about["metavar"] or None}
        several: dict[str, Any] = {"multiple": True} if about["read"] is texts else {}
        if not about.get("hidden"):
            yield Option([spelled(each.name)], group=about["group"], help=about["help"], **kind, **several)
