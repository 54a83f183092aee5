"""Wrong files from a right one, hundreds of thousands a second a core: a seed is cut into pieces once.

Texts are changed word by word and line by line, as their grammars are; binaries byte by byte, at places where the
length of what stands there may stay the same.
"""

import random
import re
from collections.abc import Callable

TOKEN = re.compile(rb'"[^"\n]*"|-?[\w.+/]+|[\[\]{}:,;=|]')
VALUES = (
    *("", "0", "-1", "1", "2", "3", "0.5", "7", "9", "64", "1e5", "1e30", "1e-12", "1e308", "1e400", "nan", ".nan"),
    *("inf", "-.inf", "9" * 30, "9" * 400, "9" * 5000, str((1 << 63) - 1), str(1 << 32), "true", "null", "~", "NONE"),
    *('""', "[]", "{}", "[1, 2]", "{a: 1}", "é", "\ufeff", "\0", "..", "!!python/object:os.system x", "&a [*a, *a]"),
    *("*a", "0x10", "1_000", "1:30", "2001-01-01", "-", "?", "%", '"\\ud800"', "<<", "100 GB/s", "-5 us", "x" * 5000),
    *(
        "[" * 3000,
        "{" * 99,
        "../x",
        "\u202e",
        "\U0001f600",
        "²",
        "-0",
        "-0.0",
        "1e",
        "0b1",
        "NaN",
        "Infinity",
        "\x1b[31m",
    ),
)
WORDS = tuple(value.encode() for value in VALUES)
BYTES = (b"\0", b"\xff", b"\xef\xbb\xbf", b"\r\n", b"\t", b"\xe2\x80\xa8", b'"', b"{", b"]", b"#", b"\x1b[31m", b"-")
BYTES = (*BYTES, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x80", b"\x7f", b"\r", b" " * 70, b"\n\n")


class Seed:
    """A right file; `changed` makes wrong ones of it."""

    def __init__(self, content: bytes, *, binary: bool = False):
        self.content = content
        tokens = [] if binary else list(TOKEN.finditer(content))
        self.words = [token[0] for token in tokens]
        ends = [0, *(token.end() for token in tokens)]
        self.between = [content[end : token.start()] for end, token in zip(ends, tokens, strict=False)]
        self.tail = content[ends[-1] :]
        self.lines = content.splitlines(keepends=True)
        self.changes: tuple[Callable[[random.Random], bytes], ...] = (self._byte, self._bits, self._span, self._cut)
        if self.words:
            words = (self._word,) * 6 + (self._words,) * 3
            self.changes = (*words, *(self._line,) * 3, self._byte, self._span, self._cut)

    def changed(self, chance: random.Random) -> bytes:
        """The content with something replaced, cut off, put in, left out, moved or repeated."""
        return chance.choice(self.changes)(chance)

    def _joined(self, words: list[bytes]) -> bytes:
        pieces = [piece for pair in zip(self.between, words, strict=True) for piece in pair]
        return b"".join([*pieces, self.tail])

    def _word(self, chance: random.Random) -> bytes:
        """One word is another."""
        words = self.words.copy()
        words[int(chance.random() * len(words))] = chance.choice(WORDS)
        return self._joined(words)

    def _words(self, chance: random.Random) -> bytes:
        """Up to three words are others, the file's own or foreign, or are not there, or stand twice."""
        words, count = self.words.copy(), len(self.words)
        for _ in range(int(chance.random() * 3) + 1):
            at, how = int(chance.random() * count), chance.random()
            own = self.words[int(chance.random() * count)]
            words[at] = own if how < 0.4 else chance.choice(WORDS) if how < 0.7 else b"" if how < 0.85 else own * 2
        return self._joined(words)

    def _line(self, chance: random.Random) -> bytes:
        """A line is left out, stands twice, or elsewhere."""
        lines = self.lines.copy()
        at, how = int(chance.random() * len(lines)), chance.random()
        line = lines.pop(at)
        if how < 0.7:
            lines.insert(at if how < 0.3 else int(chance.random() * len(lines)), line + line if how < 0.3 else line)
        return b"".join(lines)

    def _byte(self, chance: random.Random) -> bytes:
        """Bytes that mean something are put in."""
        at = int(chance.random() * (len(self.content) + 1))
        return self.content[:at] + chance.choice(BYTES) + self.content[at:]

    def _bits(self, chance: random.Random) -> bytes:
        """Up to four bytes are others; the length stays."""
        made = bytearray(self.content)
        for _ in range(int(chance.random() * 4) + 1):
            made[int(chance.random() * len(made))] = int(chance.random() * 256)
        return bytes(made)

    def _span(self, chance: random.Random) -> bytes:
        """A few bytes are left out, or stand twice."""
        at, length = int(chance.random() * len(self.content)), int(chance.random() * 40)
        middle = self.content[at : at + length] * (2 if chance.random() < 0.5 else 0)
        return self.content[:at] + middle + self.content[at + length :]

    def _cut(self, chance: random.Random) -> bytes:
        """The file ends early."""
        return self.content[: int(chance.random() * len(self.content))]
