"""XML with the place of every element, for formats of other programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from xml.parsers import expat
from xml.sax.saxutils import escape

from simcore.documents import LESS_DEEP, MAX_DEPTH, TOO_DEEP, read_text
from simcore.errors import InputError, Location

T = TypeVar("T", int, float)
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML has no way to write
_BEGINS = re.compile(r"\s*(<\?xml[^>]*>\s*)?<(system|algo)\b")


@dataclass(slots=True)
class Element:
    """An element: its name, its attributes, what is in it, elements and text, and where it begins."""

    name: str
    attributes: dict[str, str]
    location: Location
    children: list[Element] = field(default_factory=list)
    content: str = ""

    def all(self, name: str) -> list[Element]:
        """The elements of this name directly in it."""
        return [child for child in self.children if child.name == name]

    def walk(self) -> Iterator[Element]:
        """The element and everything in it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()

    def text(self, key: str, default: str | None = None) -> str:
        """An attribute; InputError where it is missing and has no default."""
        found = self.attributes.get(key, default)
        if found is None:
            raise self.error(f"<{self.name}> has no {key}", expected=f'{key}="..."')
        return found

    def integer(
        self, key: str, default: int | None = None, *, minimum: int = 0, base: int = 0, prefix: str = ""
    ) -> int:
        """A whole number, which may stand behind a prefix; InputError for anything else."""
        return self._parsed(key, default, lambda text: int(text.removeprefix(prefix), base), minimum, "a whole number")

    def number(self, key: str, default: float | None = None) -> float:
        """A number above or equal 0; InputError for anything else."""
        return self._parsed(key, default, float, 0, "a number")

    def _parsed(self, key: str, default: T | None, parse: Callable[[str], T], minimum: int, what: str) -> T:
        found = self.text(key, None if default is None else str(default))
        with suppress(ValueError):
            number = parse(found)
            if minimum <= number < float("inf"):
                return number
        raise self.error(f"{key} of <{self.name}>", expected=f"{what} >= {minimum}", found=repr(found))

    def error(self, message: str, expected: str = "", found: str = "", hint: str = "") -> InputError:
        """A fault at this place."""
        return InputError.at(self.location, message, expected=expected, found=found, hint=hint)


def escaped(text: str) -> str:
    """Text as the content of an element, from which a reader gets it back; what XML cannot have is a question mark.

    >>> escaped("a<b\\t\\r\\x1b")
    'a&lt;b\\t&#13;?'
    """
    return escape(_UNFIT.sub("?", text), {"\r": "&#13;"})


def is_markup(path: str | Path) -> bool:
    """Whether a file is taken for XML: by its name or, as dumps may have any, by how it begins."""
    return Path(path).suffix.lower() == ".xml" or bool(_BEGINS.match(read_text(path)))


def read_markup(path: str | Path) -> Element:
    """The root of an XML file; InputError says where it is not well-formed, too deep or defines entities."""
    root = Element("", {}, Location(str(path), 1, 1))
    stack = [root]
    parser = expat.ParserCreate()

    def here() -> Location:
        return Location(str(path), parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)

    def begin(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > MAX_DEPTH:
            raise InputError.at(here(), TOO_DEEP, expected=LESS_DEEP)
        element = Element(name, attributes, here())
        stack[-1].children.append(element)
        stack.append(element)

    def text(part: str) -> None:
        stack[-1].content += part

    def refuse(*_: object) -> None:
        raise InputError.at(here(), "a document type may define entities that grow without bound", expected="plain XML")

    parser.StartElementHandler, parser.EndElementHandler = begin, lambda _: stack.pop()
    parser.CharacterDataHandler, parser.buffer_text = text, True
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(read_text(path), True)
    except expat.ExpatError as error:
        place = Location(str(path), error.lineno, error.offset + 1)
        raise InputError.at(place, f"not well-formed: {expat.errors.messages[error.code]}", expected="XML") from error
    return root.children[0]
