"""Where a wrong value stands in a JSON text: looked for when there is an error, so that right files pay nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from simcore.documents import location_of
from simcore.errors import InputError, Location, Problem, SimcoreError, printable

T = TypeVar("T")
Source = tuple[bytes, str]
"""Content and name of a JSON document."""
Steps = tuple[str | int, ...]
"""Keys of objects and numbers of elements that lead from a document to one of its values."""

# What values of other kinds raise.
_UNFIT: tuple[type[Exception], ...] = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
_BETWEEN = re.compile(r"[\s,:]*")


def offset_of(text: str, steps: Steps) -> int:
    """Where the value at the end of the steps begins; as far as they lead in a text that has not all of them.

    >>> offset_of('{"nodes": [{"id": 1}, {"id": "x"}]}', ("nodes", 1, "id"))
    29
    """
    scan = json.JSONDecoder().raw_decode
    at = _next(text, 0)
    for step in steps:
        number, inside = 0, _next(text, at + 1)
        while text[at] in "[{" and text[inside] not in "]}":
            key: object = number
            if text[at] == "{":
                key, inside = scan(text, inside)
                inside = _next(text, inside)
            if key == step:
                break
            inside = _next(text, scan(text, inside)[1])
            number += 1
        else:
            return at
        at = inside
    return at


def _next(text: str, offset: int) -> int:
    """The next character that is neither a blank nor a comma or colon."""
    found = _BETWEEN.match(text, offset)
    return found.end() if found else offset


def location(document: Source, steps: Steps) -> tuple[Location, str]:
    """Line and column of a value, and the text of that line; the file alone where the document is no JSON."""
    content, file = document
    try:
        text = content.decode(json.detect_encoding(content), "replace")
        offset = offset_of(text, steps)
    except (ValueError, LookupError, RecursionError):
        return Location(file), ""
    start, end = text.rfind("\n", 0, offset) + 1, text.find("\n", offset)
    return location_of(text, offset, file), text[start : end if end >= 0 else len(text)]


def named(steps: Steps) -> str:
    """How errors call a value.

    >>> named(("nodes", 1, "id"))
    'nodes[1].id'
    """
    return printable("".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip("."))


def fitted(
    read: Callable[[Any], T], value: object, document: Source, steps: Steps, expected: str,
    *unfit: type[Exception],
) -> T:  # fmt: skip
    """What `read` makes of a value, which stands at `steps` in a document of such content and name.

    InputError where it raises what a wrong value, or an `unfit` one, does. Its place is what `read` looked at last, for
    which it reads once more.
    """
    try:
        return read(value)
    except SimcoreError:
        raise
    except (*_UNFIT, *unfit) as error:
        last = [steps]
        with suppress(Exception):  # the same one, whose place is known now
            read(_watched(value, steps, last))
        refuse(document, last[0], error, expected)


def refuse(document: Source, steps: Steps, error: Exception, expected: str) -> NoReturn:
    """Raise an error of a value as an InputError at its place."""
    text = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)[:300]
    text = text.replace("invalid literal for int() with base 10:", "not a whole number:")
    place, line = location(document, steps)
    name = named(steps)
    told = printable(f"{name}: {text}" if name else text)
    raise InputError(Problem(place, told, expected, field=name, source=line)) from error


def _watched(value: object, steps: Steps, last: list[Steps]) -> Any:
    """A value that notes what is asked of it."""
    kinds: dict[type, Callable[..., Any]] = {dict: _Mapping, list: _Sequence}
    return kinds[type(value)](value, steps, last) if type(value) in kinds else value


class _Mapping(dict[str, Any]):
    """An object of a document; `last` holds the steps to what was looked at last."""

    def __init__(self, value: dict[str, Any], steps: Steps, last: list[Steps]):
        super().__init__(value)
        self.steps, self.last = steps, last

    def __getitem__(self, key: str) -> Any:
        self.last[0] = (*self.steps, key) if key in self else self.steps
        return _watched(super().__getitem__(key), self.last[0], self.last)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default  # noqa: SIM401 - this is what it would call

    def __iter__(self) -> Iterator[str]:
        for key in super().__iter__():
            self.last[0] = (*self.steps, key)
            yield key
        self.last[0] = self.steps


class _Sequence(list[Any]):
    """A list of a document; as `_Mapping`."""

    def __init__(self, value: list[Any], steps: Steps, last: list[Steps]):
        super().__init__(value)
        self.steps, self.last = steps, last

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, int):
            self.last[0] = (*self.steps, number)
            return _watched(super().__getitem__(number), self.last[0], self.last)
        return super().__getitem__(number)

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self)):
            yield self[number]
        self.last[0] = self.steps
