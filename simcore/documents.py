"""YAML and JSON documents that remember where every value stands, so that errors can say so.

`read` gives a `Node`; its methods return checked Python values and note a located `Problem` when something is wrong.
Only plain data is read: no tags that run code, no duplicate keys.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

from simcore.errors import InputError, Location, Problem, Problems, closest
from simcore.files import read_bytes
from simcore.library import exists, is_set
from simcore.peers import HEAD, any_document, key_here, refuse_foreign

T = TypeVar("T")
MAX_DOCUMENT_BYTES = 64 << 20
MAX_DEPTH = 64
TOO_DEEP, LESS_DEEP = f"nested deeper than {MAX_DEPTH} levels", "less nesting"
MAX_VALUES = 10_000_000
ROOT = "document"
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")


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

    @classmethod
    def given(cls, name: str, value: object, place: str, problems: Problems) -> Node:
        """A value that stands in no file but was given in Python or typed, where `place` says."""
        several = isinstance(value, list | tuple)
        node = cls(name, [*value] if several else _plain(value), 0, 0, place, [], problems)  # type: ignore[misc]
        node.items = [cls.given(name, item, place, problems) for item in node.value] if several else []  # type: ignore[attr-defined]
        return node

    @property
    def location(self) -> Location:
        """Where the value starts."""
        return Location(self.file, self.line, self.column)

    def problem(self, message: str, expected: str = "", found: str = "", hint: str = "") -> None:
        """Note that this value is wrong."""
        shown = found or (repr(self.value) if not isinstance(self.value, dict | list) else type(self.value).__name__)
        width = 1 if isinstance(self.value, dict | list) else len(str(self.value))
        self.problems.add(self._problem_at(self.line, self.column, message, expected, shown, hint, width))

    def _problem_at(
        self, line: int, column: int, message: str, expected: str, found: str, hint: str, width: int
    ) -> Problem:
        source = self.source[line - 1] if 0 < line <= len(self.source) else ""
        return Problem(Location(self.file, line, column), message, expected, found, hint, self.name, source, width)

    def keys(self, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> None:
        """Check that this is a mapping with all of `required` and nothing besides `optional`."""
        known = required + optional
        if self.name == ROOT and 2 * len([key for key in self._keys if key in known]) <= len(self._keys):
            refuse_foreign("\n".join(self.source), self.file, known)
        if not isinstance(self.value, dict):
            self.problem(f"{self.name} must be a mapping", expected=f"the keys {', '.join(known)}")
            return
        for key, (line, column) in self._keys.items():
            if key not in known:
                hint = key_here(key) or closest(key, known)
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
        raise InputError.at(self.location, f"{self.name} has no '{key}'", expected=f'"{key}": ...')

    def mapping(self) -> Iterator[tuple[str, Node]]:
        """Key and value of every entry of a mapping."""
        if not isinstance(self.value, dict):
            self.problem(f"{self.name} must be a mapping", expected="key: value")
            return
        for item in self.items:
            yield item.name, item

    def sequence(self) -> list[Node]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            example = "{..}" if isinstance(self.value, dict) else "4, 8" if self.value is None else self.value
            self.problem(f"{self.name} must be a list", expected=f"a list, for example [{example}]")
            return []
        return self.items

    def listed(self, key: str) -> list[Node]:
        """The elements of a list of this mapping, none where it is left out."""
        return self[key].sequence() if key in self else []

    def text(self) -> str:
        """A string; anything else is a problem and gives ''."""
        if isinstance(self.value, str):
            return self.value
        example = f"'{self.value}'" if isinstance(self.value, int | float) else "'words'"
        self.problem(f"{self.name} must be a text", expected=f"a text, for example {example}")
        return ""

    def meant(self, find: Callable[[str], T]) -> T:
        """What `find` makes of this text; InputError at this place where the name leads nowhere."""
        name = self.text()
        try:
            return find(name)
        except InputError as error:
            raise placed(error, (), self) from error

    def path(self) -> str:
        """A file, folder or set of traces that this text names: beside the document if it is there, or as it stands."""
        beside = Path(self.file).parent / self.text()
        return str(beside) if self.text() and (exists(beside) or is_set(beside)) else self.text()

    def spellings(self) -> tuple[str, str]:
        """A name as it stands, and as the path of a file beside the document."""
        return str(self.value), str(Path(self.file).parent / str(self.value))

    def blamed(self, problem: Problem) -> Problem:
        """A problem of the option that this value is given for, or of the file that it names, told at this place."""
        named = problem.location.file
        elsewhere = named.startswith("--") and _key(named) != self.name
        message = f"{_key(named)}: {problem.message}" if elsewhere else problem.message
        plain = not isinstance(self.value, dict | list)
        found = problem.found or (repr(self.value) if plain else "")
        width = len(str(self.value)) if plain else 1
        return self._problem_at(self.line, self.column, message, problem.expected, found, problem.hint, width)

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
        self.problem(f"{self.name} must be true or false", expected="true or false")
        return False

    def integer(self, minimum: int = 0, maximum: int = (1 << 63) - 1) -> int:
        """A whole number from `minimum` to `maximum`; a problem gives `minimum`."""
        if isinstance(self.value, float) and self.value.is_integer():
            self.value = int(self.value)
        if isinstance(self.value, int) and not isinstance(self.value, bool) and minimum <= self.value <= maximum:
            return self.value
        too_large = isinstance(self.value, int) and self.value > maximum
        expected = f"a whole number {f'from {minimum:,} to {maximum:,}' if too_large else f'of at least {minimum:,}'}"
        self.problem(f"{self.name} must be {expected}", expected=expected)
        return minimum

    def number(self, minimum: float = 0.0, *, above: bool = False) -> float:
        """A finite number >= `minimum` (> with `above`); a problem gives 1.0."""
        return self.quantity(finite, minimum, above=above, unit="")

    def quantity(
        self, parse: Callable[[float | str], T], minimum: float = 0.0, *, above: bool = False,
        unit: str = ", with or without a unit",
    ) -> T:  # fmt: skip
        """A number with or without a unit through `parse` of `simcore.units`; a problem gives parse(1)."""
        bound = f"{'>' if above else '>='} {minimum:g}"
        try:
            if not isinstance(self.value, int | float | str):
                raise TypeError("expected a number")  # noqa: TRY301 - one message for every way to be wrong
            parsed = parse(self.value)
        except (TypeError, ValueError, OverflowError) as error:
            self.problem(f"{self.name}: {error}", expected=f"a number {bound}{unit}")
            return parse(1)
        if parsed < minimum or (above and parsed == minimum):  # type: ignore[operator]
            self.problem(f"{self.name} must be {bound}", expected=f"a number {bound}")
            return parse(1)
        return parsed


def _key(option: str) -> str:
    """An option as documents spell it."""
    return option.removeprefix("--").replace("-", "_")


def placed(error: InputError, entries: Iterable[Node], otherwise: Node | None = None) -> InputError:
    """An error of options, or of files that are named, where a document gives them: at the entry of that name or value.

    What no entry gives is told at `otherwise`, or stays as it is; so does what has a line already.
    """
    told = []
    for problem in error.problems:
        named = problem.location.file
        words = {named, _key(named)}
        about = (node for node in entries if words & {node.name, *node.spellings()})
        node = None if problem.location.line else next(about, otherwise)
        told.append(node.blamed(problem) if node else problem)
    return InputError(told)


def _plain(value: object) -> object:
    """A number of another library, as NumPy's, as one of Python's; all else as it is."""
    if isinstance(value, bool | int | float):
        return value
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value


def tell_at_options(error: InputError, given: Iterable[tuple[str, object]]) -> None:
    """Let an error of names that nothing has stand at the options that were given them: as typed, with their values."""
    found = {problem.found for problem in error.problems}
    nodes = [Node.given(_key(option), value, option, Problems()) for option, value in given if repr(value) in found]
    error.problems[:] = placed(error, nodes).problems


def finite(value: float | str) -> float:
    """A number as it is; ValueError for texts, infinity and NaN."""
    if isinstance(value, str | bool) or not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value!r}")
    return float(value)


def read_text(path: str | Path) -> str:
    """A whole text file; InputError when it is not there, not a file, too large or not UTF-8."""
    place, content = str(path), read_bytes(path, MAX_DOCUMENT_BYTES)
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if CONTROL.search(content, 0, HEAD):  # no text of ours with letters in another encoding
            refuse_foreign(content.decode("latin-1"), place)
        before = content[: error.start].decode().removeprefix("\ufeff")
        raise InputError.at(
            location_of(before, len(before), place),
            "this is not a text file",
            expected="UTF-8 text",
            found=f"byte {error.object[error.start]:#04x} at offset {error.start}",
            hint="if this is text in another encoding, save it as UTF-8",
        ) from error


def read_json(content: bytes, file: str, expected: str = "JSON") -> Any:
    """Plain data of a JSON text whose values' places nobody asks for; InputError with the place of a fault."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        if content.lstrip()[:1] not in (b"{", b"["):
            refuse_foreign(content[:HEAD].decode("latin-1"), file)
        place = Location(file, getattr(error, "lineno", 0), getattr(error, "colno", 0))
        raise InputError.at(place, f"not well-formed JSON: {error}", expected=expected) from error


def location_of(text: str, offset: int, file: str) -> Location:
    """Line and column of a character of a text."""
    return Location(file, text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


def read(path: str | Path, problems: Problems) -> Node:
    """The root of a YAML or JSON file."""
    return parse(read_text(path), str(path), problems)


def parse(text: str, file: str, problems: Problems) -> Node:
    """The root of a YAML or JSON document given as text; `file` names it in errors."""
    import yaml

    source = text.splitlines()
    if _HALVES in text.lower():
        text = _PAIR.sub(lambda pair: json.loads(f'"{pair[0]}"'), text)  # JSON's two halves of one character
    try:
        return _Composer(text, file, source, problems).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark and "nesting depth" in str(error.problem):  # libyaml has a limit of its own since PyYAML 6.0.4
            place = Location(file, mark.line + 1, mark.column + 1)
            raise InputError.at(place, TOO_DEEP, expected=LESS_DEEP) from error
        refuse_foreign(text, file, any_document())
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        shown = source[line - 1] if 0 < line <= len(source) else ""
        found = "a tab" if shown[column - 1 : column] == "\t" else "the end of the file" if line > len(source) else ""
        message, place = f"not well-formed: {error.problem or error.context}", Location(file, line, column)
        said = any(one[1] for one in _COMMENT.finditer("\n".join(source[:line])))
        hint = "comments begin with # here, not with // or /*" if said else ""
        raise InputError(Problem(place, message, "YAML or JSON", found, hint, source=shown)) from error
    except yaml.reader.ReaderError as error:
        place = location_of(text, len(text.encode()[: error.position].decode(errors="ignore")), file)
        found = f"the character {error.character:#04x}"
        raise InputError.at(place, f"not well-formed: {error.reason}", expected="YAML or JSON", found=found) from error


class _Composer:
    """Makes the nodes of one document from the events of PyYAML's parser, which is libyaml where that is there.

    An alias shares what is in its anchor's node, so memory does not grow with aliases; what it stands for is counted.
    """

    def __init__(self, text: str, file: str, source: list[str], problems: Problems):
        import yaml

        self.event = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text).get_event
        self.file, self.source, self.problems = file, source, problems
        self.anchors: dict[str, tuple[Node, int] | None] = {}
        self.values = 0

    def document(self) -> Node:
        """The only document of the file."""
        from yaml import DocumentStartEvent, StreamEndEvent

        self.event()
        if not isinstance(self.event(), DocumentStartEvent):
            raise InputError.at(Location(self.file, 1, 1), "the file is empty", expected="a YAML or JSON document")
        root = self._node(ROOT, self.event(), 0)
        self.event()
        following = self.event()
        if not isinstance(following, StreamEndEvent):
            raise self._refused(following, "a second document begins here", "one document in a file")
        return root

    def _refused(self, event: Any, message: str, expected: str) -> InputError:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        shown = self.source[line - 1] if line <= len(self.source) else ""
        return InputError(Problem(Location(self.file, line, column), message, expected, source=shown))

    def _node(self, name: str, event: Any, depth: int) -> Node:
        """The node that begins with an event."""
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self._alias(name, event)
        if depth > MAX_DEPTH:
            raise self._refused(event, TOO_DEEP, LESS_DEEP)
        mark, first = event.start_mark, self.values
        node = Node(name, None, mark.line + 1, mark.column + 1, self.file, self.source, self.problems)
        if event.anchor:
            self.anchors[event.anchor] = None  # an anchor may be given again (YAML 1.2, 3.2.2.2)
        if kind == "ScalarEvent":
            node.value = _scalar(event.value, event.tag, event.implicit[0])
        elif kind == "SequenceStartEvent":
            while type(following := self.event()).__name__ != "SequenceEndEvent":
                node.items.append(self._node(f"{name}[{len(node.items)}]", following, depth + 1))
            node.value = [item.value for item in node.items]
        else:
            self._fill_mapping(node, depth)
        self._count(event, 1)
        if event.anchor:
            self.anchors[event.anchor] = node, self.values - first
        return node

    def _count(self, event: Any, values: int) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            raise self._refused(event, f"more than {MAX_VALUES:,} values, those of aliases counted", "fewer values")

    def _alias(self, name: str, event: Any) -> Node:
        """The node of an anchor under the name of the place that refers to it."""
        found = self.anchors.get(event.anchor)
        if found is None:
            raise self._refused(event, f"no anchor '&{event.anchor}' ends before this", "the name of an earlier anchor")
        meant, values = found
        self._count(event, values)
        node = Node(name, meant.value, meant.line, meant.column, self.file, self.source, self.problems)
        node.items, node._keys = meant.items, meant._keys
        return node

    def _fill_mapping(self, node: Node, depth: int) -> None:
        """Enter the pairs of a mapping; a key that stands twice is a problem."""
        while type(key := self.event()).__name__ != "MappingEndEvent":
            mark = key.start_mark.line + 1, key.start_mark.column + 1
            if type(key).__name__ == "AliasEvent":
                name = str(self._alias("key", key).value)
            elif type(key).__name__ != "ScalarEvent":
                raise self._refused(key, "a list or mapping cannot be a key", "a word")
            else:
                name = key.value
                if key.anchor:
                    self._node("key", key, 0)
            item = self._node(name, self.event(), depth + 1)
            if name in node._keys:
                hint = f"first in line {node._keys[name][0]}"
                message = f"the key '{name}' stands twice"
                node.problems.add(node._problem_at(*mark, message, "one", name, hint, len(name)))
            else:
                node._keys[name] = mark
                node.items.append(item)
        node.value = {item.name: item.value for item in node.items}


def _scalar(text: str, tag: str | None, plain: bool) -> object:
    """A YAML 1.2 scalar as Python data (10.3.2); a quoted one, or one of an unknown tag, stays text."""
    kind = tag.rsplit(":", 1)[-1] if tag else ""
    if plain and not tag and text[:1] in _STARTS:
        number = "int" if _INTEGER.fullmatch(text) else "float" if _FLOAT.fullmatch(text) else ""
        kind = _WORDS.get(text, number)
    try:
        if kind == "int":
            return int(text.replace("_", ""), 0)
        if kind == "float":
            return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    return None if kind == "null" else text.lower() == "true" if kind == "bool" else text


_STARTS = frozenset(("", *"~nNtTfF+-.0123456789"))
_WORDS = dict.fromkeys(("", "~", "null", "Null", "NULL"), "null") | dict.fromkeys(
    ("true", "True", "TRUE", "false", "False", "FALSE"), "bool"
)
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|[0-9_]+|0x[0-9a-fA-F_]+)")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9_]+(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))"
    r"|\.(?:nan|NaN|NAN)"
)
_HALVES = "\\ud"
_PAIR = re.compile(r"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
# A text in quotes, a comment of YAML, or (group 1) the beginning of one as other languages have it.
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"?|(?:^|(?<=\s))#.*|(?:^|(?<=[\s,\[\]{}]))(//|/\*)', re.MULTILINE)
