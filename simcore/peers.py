"""What other tools' options are called here, and what a file is that was given in place of another."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache

from simcore.errors import InputError, Location
from simcore.library import table

HEAD = 1 << 14  # characters in which a file says what it is


@cache
def _kinds() -> list[tuple[frozenset[str], re.Pattern[str], str, str]]:
    """Keys of a document ("{" for any), pattern, what it is and what to do with it of every row of foreign.txt."""
    kinds = []
    for begins, what, instead in table(__file__, "foreign.txt", 3):
        keys = [word[1:] for word in begins.split()] if begins.startswith(":") else []
        pattern = rf"""(?ms).*?(^|[{{,])\s*["']?({"|".join(keys)})["']?\s*:""" if keys else begins
        kinds.append((frozenset(keys or "{" * begins.startswith(r"\s*\{")), re.compile(pattern), what, instead))
    return kinds


@cache
def any_document() -> frozenset[str]:
    """The keys of all kinds of documents: `own` of whoever reads one that is not well-formed, which may be its own."""
    return frozenset().union(*(keys for keys, *_ in _kinds()))


def foreign(text: str, own: Collection[str] = ()) -> tuple[str, str, int]:
    """What a file is, what to do with it, and the line that says so; empty where it is not known.

    `own` are keys, or what a kind is called, that the reader knows itself.
    """
    for keys, pattern, what, instead in _kinds():
        if what not in own and keys.isdisjoint(own) and (found := pattern.match(text, 0, HEAD)):
            return what, instead, text.count("\n", 0, max(found.end() - 1, 0)) + 1
    return "", "", 0


def refuse_foreign(text: str, file: str, own: Collection[str] = ()) -> None:
    """InputError for a file of another kind: what it is, and what to do with it."""
    what, instead, line = foreign(text, own)
    if what:
        raise InputError.at(Location(file, line, 1), f"this is {what}", expected="another kind of file", hint=instead)


def option_here(name: str, known: Collection[str]) -> str:
    """What another tool's option is called in a command with these options; empty where nothing is known of it."""
    rows = table(__file__, "peers_options.txt")
    ours = (option for theirs, names in rows if theirs == name.replace("_", "-") for option in names.split())
    return next((option for option in ours if option in known), "")


def key_here(name: str) -> str:
    """What to write in place of a key of early files of ASTRA-sim; empty where it is none of theirs."""
    return next((row[1] for row in table(__file__, "peers_keys.txt") if row[0] == name), "")
