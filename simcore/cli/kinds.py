"""What options take: kinds of values, as `commands.txt` calls them; each says what it expects."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simcore import files
from simcore.errors import InputError, closest, wrong
from simcore.options import Reader, count, factor, number, seed, whole
from simcore.units import parse_bytes, parse_bytes_per_s, parse_ns

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from simcore.library import Shelf


def named(place: str) -> Any:
    """What MODULE:NAME says, imported when it is needed; modules without a dot are those of the command line."""
    module, _, name = place.partition(":")
    return getattr(import_module(module if "." in module else f"simcore.cli.{module}"), name)


def place(param: click.Parameter | None) -> str:
    """What errors call a parameter: an option as it is typed, an argument as the help shows it."""
    if param is None:
        return ""
    return max(param.opts, key=len) if isinstance(param, click.Option) else (param.metavar or param.human_readable_name)


class Kind(click.ParamType):  # type: ignore[type-arg]  # generic in new versions only
    """A value as a reader takes it, whose ValueError says what is expected; `name` is what the help shows for it."""

    def __init__(self, read: Reader, name: str = "X"):
        self.read, self.name = read, name

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """A letter for a number: what it may be is told when it is not."""
        return self.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the value means; InputError says what is expected and what was found."""
        try:
            return self.read(value)
        except (ValueError, TypeError) as error:
            raise wrong(place(param), str(error), value) from error


def quantity(parse: Callable[[Any], float], expected: str, factor: float = 1.0, *, above: bool = False) -> Kind:
    """A number with a unit, as everywhere in simcore, in the option's own unit; `above` 0."""

    def read(value: Any) -> float:
        try:
            number = float(parse(value)) * factor
        except (ValueError, TypeError):
            number = -1.0
        if not 0 <= number < MOST or (above and not number):
            raise ValueError(expected)
        return number

    return Kind(read, "QUANTITY")


MOST = 2.0**63
TIME = "a time{}, for example '1.5 us' or '54 h'"


class Choice(click.Choice):  # type: ignore[type-arg]
    """One of a few words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word; InputError names the nearest."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise wrong(place(param), closest(str(value), map(str, self.choices)), value) from error


class Shipped(click.types.StringParamType):
    """A file, or a name on a shelf of the library, which shells complete."""

    def __init__(self, shelf: Shelf):
        self._shelf = shelf

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name as it was given; InputError for none."""
        if not value:
            raise wrong(place(param), "a path or the name of a shipped example", value)
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that begin with what is typed; the shell's own files where none does."""
        from click.shell_completion import CompletionItem

        from simcore import library

        found = [CompletionItem(name) for name in library.names(self._shelf) if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


def named_one(names: Callable[[], Collection[str]]) -> Reader:
    """One of some names, which are looked up when one is given, not for the help."""

    def read(value: Any) -> str:
        if value not in (known := names()):
            raise ValueError(closest(str(value), known))
        return str(value)

    return read


class Target(click.ParamType):  # type: ignore[type-arg]
    """A file to write: refused before any work where it could not be, or would overwrite something.

    `what` are the suffixes that its name may have, or MODULE:NAME where these are found when a file is named. A
    `folder` holds several files; of a `prefix` the names are known, and checked, when there is something to write.
    """

    name = "file"

    def __init__(self, what: str = ""):
        self.folder, self.prefix = what == "folder", what == "prefix"
        self._what = "" if self.folder or self.prefix else what

    def suffixes(self) -> tuple[str, ...]:
        """What the name may end with; any where there are none."""
        return tuple(named(self._what) if ":" in self._what else filter(None, self._what.split(",")))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as it was given."""
        path, spelling = Path(value), place(param) or "--output"
        known = self.suffixes()
        if known and not path.name.lower().endswith(known):
            found = "".join(path.suffixes[-2:]) or path.name
            message, expected = f"{spelling} writes no file of this kind", closest(found, known)
            raise InputError.at(str(value), message, expected=expected, found=repr(found), field=spelling)
        if self.prefix and not path.name.strip("."):
            raise InputError.at(str(value), "this is a folder", expected="how the files' names begin", found=spelling)
        free = self.prefix or not path.exists() or (self.folder and path.is_dir() and not files.occupied(path))
        if self.folder and path.exists() and not path.is_dir():
            raise InputError.at(str(value), "this is a file", expected="a new or empty folder", found=spelling)
        if not (self.prefix or self.folder or path.parent.is_dir()):
            expected = "a folder that exists"
            raise InputError.at(str(value), "the folder does not exist", expected=expected, found=str(path.parent))
        if not free and not forced():
            message, expected, them = "the file exists", "a new file", "it"
            if self.folder:
                message, expected, them = "the folder is not empty", "a new or empty one", "files"
            raise InputError.at(str(value), message, expected=expected, hint=f"--force overwrites {them}")
        return str(value)


def forced() -> bool:
    """Whether --force was given."""
    return bool(click.get_current_context().meta.get("simcore.force"))


def numbers(value: Any) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    parts = (each.strip() for each in value.split(",")) if isinstance(value, str) else value
    try:
        return tuple(whole(each, 0, 10**9) for each in parts)
    except ValueError:
        raise ValueError("whole numbers with commas between them, for example 0,2,4") from None


KINDS: dict[str, click.ParamType[Any]] = {
    "int": Kind(seed, "N"),
    "numbers": Kind(numbers, "N,N"),
    "count": Kind(count, "N"),
    "positive": Kind(factor),
    "size": Kind(partial(number, least=0)),
    "text": click.STRING,
    "topologies": Shipped("topologies"),
    "workloads": Shipped("workloads"),
    "seconds": quantity(parse_ns, TIME.format(""), 1e-9),
    "duration": quantity(parse_ns, TIME.format(" above 0"), 1e-9, above=True),
    "nanoseconds": quantity(parse_ns, TIME.format("")),
    "bytes": quantity(parse_bytes, "whole bytes, for example '64 MiB'"),
    "rate": quantity(parse_bytes_per_s, "a bandwidth above 0, for example '400 Gb/s'", above=True),
}
