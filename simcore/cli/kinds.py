"""What options take: kinds of values, as `commands.txt` calls them; each says what it expects."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simcore import files
from simcore.errors import InputError, closest
from simcore.units import parse_bytes, parse_bytes_per_s, parse_ns

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from simcore.library import Shelf


def named(place: str) -> Any:
    """What MODULE:NAME says, imported when it is needed; modules without a dot are those of the command line."""
    module, _, name = place.partition(":")
    return getattr(import_module(module if "." in module else f"simcore.cli.{module}"), name)


class _Bounded(click.ParamType):  # type: ignore[type-arg]  # generic in new versions only
    """A number in a range, and no NaN; what it may be is told in words."""

    noun = "a number"
    min: Any
    max: Any
    min_open: bool

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error says what is expected and what was found."""
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            above = "above" if self.min_open else "of at least" if self.max is None else "from"
            high = "" if self.max is None else f" to {self.max:,}"
            self.fail(f"must be {self.noun} {above} {self.min:g}{high}, found {value!r}", param, ctx)
        return number


class Finite(_Bounded, click.FloatRange):
    """A float in a range."""


class Whole(_Bounded, click.IntRange):
    """A whole number in a range."""

    noun = "a whole number"


MOST = 2.0**63
POSITIVE = Finite(1e-12, 1e30)  # bounded so that no product of a few numbers leaves the range of a float


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """A number with a unit, as everywhere in simcore."""

    name = "quantity"

    def __init__(self, parse: Callable[[Any], float], factor: float = 1.0):
        self._parse, self._factor = parse, factor

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number in the option's own unit; a usage error says what is expected."""
        try:
            number = float(self._parse(value)) * self._factor
        except (ValueError, TypeError) as error:
            self.fail(str(error), param, ctx)
        if not 0 <= number < MOST:
            self.fail(f"must be from 0 to 2^63 - 1, found {value!r}", param, ctx)
        return number


class Shipped(click.types.StringParamType):
    """A file, or a name on a shelf of the library, which shells complete."""

    def __init__(self, shelf: Shelf):
        self._shelf = shelf

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that begin with what is typed; the shell's own files where none does."""
        from click.shell_completion import CompletionItem

        from simcore import library

        found = [CompletionItem(name) for name in library.names(self._shelf) if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


class Named(click.ParamType):  # type: ignore[type-arg]
    """One of some names, which are looked up when one is given, not for the help."""

    name = "name"

    def __init__(self, names: Callable[[], Collection[str]]):
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; a usage error tells the nearest."""
        known = self._names()
        if value not in known:
            self.fail(f"no such name '{value}'; {closest(str(value), known)}", param, ctx)
        return str(value)


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
        path, spelling = Path(value), param.opts[-1] if param else "--output"
        known = self.suffixes()
        if known and not path.name.lower().endswith(known):
            found = "".join(path.suffixes[-2:]) or path.name
            message, expected = f"{spelling} writes no file of this kind", closest(found, known)
            raise InputError.at(str(value), message, expected=expected, found=repr(found), field=spelling)
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


KINDS: dict[str, click.ParamType[Any]] = {
    "count": Whole(1, 10**9),
    "positive": POSITIVE,
    ">0": Finite(0, min_open=True),
    "size": Finite(0, 1e30),
    "int": click.INT,
    "text": click.STRING,
    "topologies": Shipped("topologies"),
    "workloads": Shipped("workloads"),
    "seconds": Quantity(parse_ns, 1e-9),
    "nanoseconds": Quantity(parse_ns),
    "bytes": Quantity(parse_bytes),
    "rate": Quantity(parse_bytes_per_s),
}
