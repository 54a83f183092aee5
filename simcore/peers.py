"""What other simulators' files and options are called here: those that cannot be read say what to write instead."""

from __future__ import annotations

import re

from simcore.errors import InputError, Location
from simcore.library import table

FOREIGN = table(__file__, "peers.txt", 3)
OPTIONS = {row[0]: row[1] for row in table(__file__, "peers_options.txt")}


def refuse_foreign(text: str, file: str) -> None:
    """InputError for a file that another simulator reads and simcore does not: what it is, what to write instead."""
    for pattern, what, instead in FOREIGN:
        if found := re.match(pattern, text):
            line = text.count("\n", 0, found.end() - 1) + 1
            raise InputError.at(Location(file, line, 1), f"this is {what}", expected="a file of simcore", hint=instead)


def option_here(name: str) -> str:
    """What ASTRA-sim's and SimAI's option is called here; empty where it is none of theirs."""
    return OPTIONS.get(name.replace("_", "-"), "")
