"""Reads what a documentation page tells its reader to do: commands, Python, files to save and expected output.

A page says more in HTML comments: `<!-- not run: REASON -->`, `<!-- saved as FILE -->` and `<!-- output -->` (of the
block before) stand before a block; `<!-- first: COMMAND -->` prepares a file that the page takes for granted.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

COMMENT = re.compile(r"<!-- (not run|saved as|output|first)(?:: | )?(.*?) ?-->")
HEREDOC = re.compile(r"^cat > (\S+) <<'EOF'\n(.*?\n)EOF$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One thing to do: kind is console, python, file or output; `name` the file's."""

    kind: str
    text: str
    name: str = ""


def blocks(page: str) -> Iterator[Block]:
    """Everything a reader does, in order; what is marked as not run is left out."""
    mark, words = "", ""
    for kind, text in _pieces(page):
        if kind == "comment":
            mark, words = COMMENT.fullmatch(text).groups()
            if mark == "first":
                yield Block("console", words)
                mark = ""
            continue
        if mark == "saved as":
            yield Block("file", text, words)
        elif mark == "output":
            yield Block("output", text)
        elif mark != "not run":
            yield from _executable(kind, text)
        mark = ""


def _executable(language: str, text: str) -> Iterator[Block]:
    if language == "python":
        yield Block("python", text)
        return
    for name, content in HEREDOC.findall(text):
        yield Block("file", content, name)
    lines = HEREDOC.sub("", text).replace("\\\n", " ").splitlines()
    for line in (line.removeprefix("$ ") for line in lines):
        if line.startswith(("simcore ", "mkdir ")):
            yield Block("console", line)


def _pieces(page: str) -> Iterator[tuple[str, str]]:
    """Comments of ours, fenced blocks by language and indented blocks, in order."""
    pattern = (
        r"^```(?P<language>\S*)\n(?P<fenced>.*?)^```$|(?P<comment>^<!-- [^\n]* -->$)|(?P<indented>(?:^    [^\n]*\n)+)"
    )
    for found in re.finditer(pattern, page, re.MULTILINE | re.DOTALL):
        if found["comment"]:
            if COMMENT.fullmatch(found["comment"]):
                yield "comment", found["comment"]
        elif found["indented"]:
            yield "", re.sub(r"^    ", "", found["indented"], flags=re.MULTILINE)
        else:
            yield found["language"], found["fenced"]
