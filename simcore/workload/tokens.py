"""Words of a text file with their places, and a cursor over them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from simcore.errors import Location, Problem, Problems

MAX_INTEGER = (1 << 63) - 1
_INTEGER = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"0*([0-9]{1,19})")


def is_integer(text: str) -> bool:
    """Whether a word is a whole number, of any sign and length."""
    return _INTEGER.fullmatch(text) is not None


def unsigned(text: str) -> int | None:
    """The whole number 0 .. 2^63 - 1 that `text` spells in decimal digits, None when it is none.

    >>> unsigned("007"), unsigned("-1"), unsigned("1_000"), unsigned("9223372036854775808")
    (7, None, None, None)
    """
    match = _UNSIGNED.fullmatch(text)
    value = int(match[1]) if match else -1
    return value if 0 <= value <= MAX_INTEGER else None


def unsigned_column(words: Sequence[str]) -> list[int] | None:
    """`unsigned` of many words together; None where some need a closer look.

    >>> unsigned_column(["007", "12"]), unsigned_column(["7", "-1"])
    ([7, 12], None)
    """
    joined = "".join(words)
    plain = joined.isascii() and joined.isdecimal() and max(map(len, words)) < len(str(MAX_INTEGER))
    return list(map(int, words)) if plain else None


class Token(Struct, frozen=True):
    """One word; line and column count from 1."""

    text: str
    line: int
    column: int


class Source:
    """A text in lines, the name it goes by, and the problems found in it."""

    def __init__(self, text: str, file: str, problems: Problems):
        self.file, self.problems = file, problems
        self.lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")

    def tokens(self, first_line: int = 1) -> Iterator[Token]:
        """Every word from line `first_line` on."""
        for number, line in enumerate(self.lines[first_line - 1 :], first_line):
            for match in re.finditer(r"\S+", line):
                yield Token(match[0], number, match.start() + 1)

    def location(self, token: Token) -> Location:
        """Where a word stands."""
        return Location(self.file, token.line, token.column)

    def end(self) -> Token:
        """The place behind the last word, as an empty one; 1:1 of a blank text."""
        for number in range(len(self.lines), 0, -1):
            if line := self.lines[number - 1].rstrip():
                return Token("", number, len(line) + 1)
        return Token("", 1, 1)

    def problem(
        self, token: Token, message: str, expected: str = "", found: str = "", hint: str = "", field: str = ""
    ) -> None:
        """Note that something is wrong at a word."""
        shown = found or (repr(token.text) if token.text else "the end of the file")
        source, width = self.lines[token.line - 1], len(token.text)
        self.problems.add(Problem(self.location(token), message, expected, shown, hint, field, source, width))


class Cursor:
    """A place between the words of a source; words are cut as they are asked for."""

    def __init__(self, source: Source):
        self.source = source
        self.position = 0
        self._left = source.tokens()
        self._seen: list[Token] = []

    def peek(self) -> Token | None:
        """The next word, None at the end."""
        if self.position == len(self._seen):
            token = next(self._left, None)
            if token is None:
                return None
            self._seen.append(token)
        return self._seen[self.position]

    def take(self) -> Token | None:
        """The next word, stepping over it."""
        token = self.peek()
        self.position += token is not None
        return token
