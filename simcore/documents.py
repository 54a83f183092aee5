"""YAML and JSON documents that remember where every value stands, so that errors can say so.

`read` gives a `Node`; its methods return checked Python values and note a located `Problem` when something is wrong.
Only plain data is read: no tags, no anchors that run code, no duplicate keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from simcore.errors import InputError, Location, Problem, Problems, closest

__all__ = ["Node", "parse", "read", "read_text"]

T = TypeVar("T")
MAX_DOCUMENT_BYTES = 64 << 20
MAX_DEPTH = 64
MAX_VALUES = 10_000_000


class Node:
    """One value of a document with its place; `value` is plain data: dict, list, str, int, float, bool or None."""

    __slots__ = ("_keys", "column", "file", "items", "line", "name", "problems", "source", "value")

    def __init__(
        self, name: str, value: object, line: int, column: int, file: str, source: list[str], problems: Problems
    ):
        self.name, self.value, self.line, self.column = name, value, line, column
        self.file, self.source, self.problems = file, source, problems
        self.items: list[Node] = []
        self._keys: dict[str, tuple[int, int]] = {}

    @property
    def location(self) -> Location:
        """Where the value starts."""
        return Location(self.file, self.line, self.column)

    def problem(self, message: str, expected: str = "", found: str = "", hint: str = "") -> None:
        """Note that this value is wrong."""
        shown = found or (repr(self.value) if not isinstance(self.value, dict | list) else type(self.value).__name__)
        self.problems.add(
            self._problem_at(self.line, self.column, message, expected, shown, hint, len(str(self.value)))
        )

    def _problem_at(
        self, line: int, column: int, message: str, expected: str, found: str, hint: str, width: int
    ) -> Problem:
        source = self.source[line - 1] if 0 < line <= len(self.source) else ""
        return Problem(Location(self.file, line, column), message, expected, found, hint, self.name, source, width)

    def keys(self, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> None:
        """Check that this is a mapping with all of `required` and nothing besides `optional`."""
        if not isinstance(self.value, dict):
            self.problem(f"{self.name} must be a mapping", expected=f"the keys {', '.join(required + optional)}")
            return
        known = required + optional
        for key, (line, column) in self._keys.items():
            if key not in known:
                hint = closest(key, known)
                self.problems.add(
                    self._problem_at(line, column, f"unknown key '{key}'", "a known key", repr(key), hint, len(key))
                )
        for key in required:
            if key not in self.value:
                self.problem(
                    f"the key '{key}' is missing", expected=f"{key}: ...", found=", ".join(self.value) or "nothing"
                )

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def __getitem__(self, key: str) -> Node:
        for item in self.items:
            if item.name == key:
                return item
        raise KeyError(key)

    def mapping(self) -> Iterator[tuple[str, Node]]:
        """Key and value of every entry of a mapping."""
        if not isinstance(self.value, dict):
            self.problem(f"{self.name} must be a mapping")
            return
        for item in self.items:
            yield item.name, item

    def sequence(self) -> list[Node]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            self.problem(f"{self.name} must be a list", expected="a list, for example [4, 8]")
            return []
        return self.items

    def text(self) -> str:
        """A string; anything else is a problem and gives ''."""
        if isinstance(self.value, str):
            return self.value
        self.problem(f"{self.name} must be a text")
        return ""

    def choice(self, choices: dict[str, T] | list[str]) -> T | str | None:
        """One of `choices`: the value of a dict, the text itself of a list; a problem gives None."""
        if isinstance(self.value, str) and self.value in choices:
            return choices[self.value] if isinstance(choices, dict) else self.value
        self.problem(f"{self.name} is not known", expected=closest(str(self.value), choices))
        return None

    def flag(self) -> bool:
        """A truth value: true, false, 1 or 0."""
        if isinstance(self.value, bool) or self.value in (0, 1):
            return bool(self.value)
        self.problem(f"{self.name} must be true or false")
        return False

    def integer(self, minimum: int = 0, maximum: int = (1 << 63) - 1) -> int:
        """A whole number from `minimum` to `maximum`; a problem gives `minimum`."""
        if isinstance(self.value, float) and self.value.is_integer():
            self.value = int(self.value)
        if isinstance(self.value, int) and not isinstance(self.value, bool) and minimum <= self.value <= maximum:
            return self.value
        bound = f" and at most {maximum:,}" if isinstance(self.value, int) and self.value > maximum else ""
        expected = f"an integer >= {minimum}"
        self.problem(f"{self.name} must be a whole number of at least {minimum}{bound}", expected=expected)
        return minimum

    def number(self, minimum: float = 0.0, *, above: bool = False) -> float:
        """A finite number >= `minimum` (> with `above`); a problem gives 1.0."""
        return self.quantity(_finite, minimum, above=above)

    def quantity(self, parse: Callable[[float | str], T], minimum: float = 0.0, *, above: bool = False) -> T:
        """A number with or without a unit through `parse` of `simcore.units`; a problem gives parse(1)."""
        bound = f"{'>' if above else '>='} {minimum:g}"
        try:
            if not isinstance(self.value, int | float | str):
                raise TypeError("expected a number")  # noqa: TRY301 - one message for every way to be wrong
            parsed = parse(self.value)
        except (TypeError, ValueError) as error:
            self.problem(f"{self.name}: {error}", expected=f"a number {bound}, with or without a unit")
            return parse(1)
        if parsed < minimum or (above and parsed == minimum):  # type: ignore[operator]
            self.problem(f"{self.name} must be {bound}", expected=f"a number {bound}")
            return parse(1)
        return parsed


def _finite(value: float | str) -> float:
    if isinstance(value, str | bool) or not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value!r}")
    return float(value)


def read_text(path: str | Path) -> str:
    """A whole text file; InputError when it is not there, not a file, too large or not UTF-8."""
    place = str(path)
    try:
        if Path(path).stat().st_size > MAX_DOCUMENT_BYTES:
            raise InputError.at(place, f"the file is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError.at(place, f"cannot read: {error.strerror or error}", hint="check the path") from error
    except UnicodeDecodeError as error:
        raise InputError.at(
            place,
            "this is not a text file",
            expected="UTF-8 text",
            found=f"byte {error.object[error.start]:#04x} at offset {error.start}",
        ) from error
    except ValueError as error:
        raise InputError.at(ascii(place), "no file can have this name", expected="the path of a file") from error


def read(path: str | Path, problems: Problems) -> Node:
    """The root of a YAML or JSON file."""
    return parse(read_text(path), str(path), problems)


def parse(text: str, file: str, problems: Problems) -> Node:
    """The root of a YAML or JSON document given as text; `file` names it in errors."""
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import MaxDepthExceededError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    source = text.splitlines()
    try:
        reader = YAML(typ="safe", pure=True)
        reader.composer.warn_double_anchors = False  # an anchor may be given again (YAML 1.2, 3.2.2.2)
        reader.max_depth = MAX_DEPTH  # deep nesting takes quadratic time before it is refused
        root = reader.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        shown = source[line - 1] if 0 < line <= len(source) else ""
        found = "a tab" if "\t" in str(error.problem) else "the end of the file" if line > len(source) else ""
        deep = isinstance(error, MaxDepthExceededError)
        message = (
            f"nested deeper than {MAX_DEPTH} levels" if deep else f"not well-formed: {error.problem or error.context}"
        )
        raise InputError(Problem(Location(file, line, column), message, "YAML or JSON", found, source=shown)) from error
    except (YAMLError, RecursionError, ValueError) as error:
        raise InputError.at(
            Location(file, 1, 1), f"not well-formed: {str(error).splitlines()[0]}", expected="YAML or JSON"
        ) from error
    if root is None:
        raise InputError.at(Location(file, 1, 1), "the file is empty", expected="a YAML or JSON document")
    if _expanded(root, {}) > MAX_VALUES:
        message = f"aliases make more than {MAX_VALUES:,} values of this file"
        raise InputError.at(Location(file, 1, 1), message, expected="values written out")
    return _node("document", root, file, source, problems, 0)


def _expanded(raw: Any, known: dict[int, float]) -> float:
    """How many values a composed document has once its aliases are followed; infinite when one holds itself."""
    if raw.id == "scalar":
        return 1
    if id(raw) not in known:
        known[id(raw)] = math.inf  # met again before it is counted: it holds itself
        inner = raw.value if raw.id == "sequence" else [value for _, value in raw.value]
        known[id(raw)] = 1 + sum(_expanded(item, known) for item in inner)
    return known[id(raw)]


def _node(name: str, raw: Any, file: str, source: list[str], problems: Problems, depth: int) -> Node:
    """Our node for one of the YAML composer's."""
    line, column = raw.start_mark.line + 1, raw.start_mark.column + 1
    node = Node(name, None, line, column, file, source, problems)
    if depth > MAX_DEPTH:
        raise InputError.at(Location(file, line, column), f"nested deeper than {MAX_DEPTH} levels")
    if raw.id == "scalar":
        node.value = _scalar(raw.tag, raw.value)
    elif raw.id == "sequence":
        node.items = [
            _node(f"{name}[{i}]", item, file, source, problems, depth + 1) for i, item in enumerate(raw.value)
        ]
        node.value = [item.value for item in node.items]
    else:
        _fill_mapping(node, raw, depth)
    return node


def _fill_mapping(node: Node, raw: Any, depth: int) -> None:
    """Enter the pairs of a mapping; a key that stands twice is a problem."""
    for key, value in raw.value:
        name, mark = str(key.value), (key.start_mark.line + 1, key.start_mark.column + 1)
        if name in node._keys:
            first = f"line {node._keys[name][0]}"
            node.problems.add(
                node._problem_at(*mark, f"the key '{name}' stands twice", "one", name, f"first in {first}", len(name))
            )
            continue
        node._keys[name] = mark
        node.items.append(_node(name, value, node.file, node.source, node.problems, depth + 1))
    node.value = {item.name: item.value for item in node.items}


def _scalar(tag: object, text: str) -> object:
    """A YAML 1.2 scalar as Python data; a quoted or unknown one stays text."""
    kind = str(tag).rsplit(":", 1)[-1]
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    try:
        if kind == "int":
            return int(text.replace("_", ""), 0)
        if kind == "float":
            return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan").replace(".NaN", "nan"))
    except ValueError:
        pass
    return text
