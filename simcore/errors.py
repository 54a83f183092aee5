"""Errors that say where, what was expected, what was found and what to do.

::

    SimcoreError                 exit status
    ├── InputError               2   a file or a value given by the user is wrong; holds `Problem`s
    └── SimulationError          1   the run itself failed
        └── DeadlockError        1   nothing can happen any more and somebody still waits
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import TracebackType

MAX_PROBLEMS = 20
MOST_NAMED, MOST_SHOWN = 100, 300


class SimcoreError(Exception):
    """Base of every error meant for the user; `exit_status` is what the command returns."""

    exit_status = 1


class SimulationError(SimcoreError):
    """The simulation could not finish or broke one of its laws."""


class DeadlockError(SimulationError):
    """Nothing can happen any more while somebody still waits; the message names who and for what."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file, as the user named it; line and column count from 1, 0 = not known."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input.

    `location` is a file position or, for a command line value, the option's name in `Location.file`.
    `source` is the text of the line, `width` how many characters of it are meant.
    """

    location: Location
    message: str
    expected: str = ""
    found: str = ""
    hint: str = ""
    field: str = ""
    source: str = ""
    width: int = 1

    def __post_init__(self) -> None:
        if len(self.found) > MOST_SHOWN:
            object.__setattr__(self, "found", f"{self.found[:MOST_SHOWN]} ..")

    def to_dict(self) -> dict[str, str | int]:
        """The entry of the JSON document that `--json` prints."""
        said = ("field", "expected", "found", "hint", "message")
        return asdict(self.location) | {name: getattr(self, name) for name in said}

    def __str__(self) -> str:
        lines = [f"{self.location}: error: {self.message}"]
        if self.source and self.location.line:  # with a marker below the place; long lines are cut around it
            start = max(0, self.location.column - 70)
            shown = self.source.expandtabs(1)[start : start + 110]
            marker = " " * (self.location.column - 1 - start) + "^" * max(1, min(self.width, 60))
            lines += [f"{self.location.line:>5} | {shown}", f"      | {marker}"]
        for label, text in (("expected", self.expected), ("found", self.found), ("hint", self.hint)):
            if text:
                lines.append(f"  {label + ':':<9} {text}")
        return "\n".join(lines)


class InputError(SimcoreError):
    """What the user gave is wrong; the command exits with 2.

    `problems` lists everything found, at most `MAX_PROBLEMS`. Each `Problem` has a place (file, line and column, or the
    option), a message, what was expected, what was found and a hint. As text it is what the command line shows.
    """

    exit_status = 2

    def __init__(self, problems: Iterable[Problem] | Problem):
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__(self.problems)  # pickle makes the error again from these arguments

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))

    @classmethod
    def at(cls, location: Location | str, message: str, **details: str) -> InputError:
        """Make an error with a single problem; a string is a file or an option without a position."""
        place = Location(location) if isinstance(location, str) else location
        return cls(Problem(place, message, **details))  # type: ignore[arg-type]


def wrong(place: str, expected: str, found: object) -> InputError:
    """The error for a value of an option, or an argument of a function, that is not what is expected."""
    return InputError.at(place, "wrong value", expected=expected, found=repr(found))


def unlike(role: str, value: object, expected: str) -> InputError:
    """The error for an input of a run that is neither named nor read."""
    return InputError.at(f"--{role}", f"this is no {role}", expected=expected, found=type(value).__name__)


class Problems:
    """Collects the problems of one input; leaving the `with` block raises them all together, before what ended it."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, problem: Problem) -> None:
        """Note one problem, once; the first one too many ends the reading."""
        if problem in self.found:
            return
        self.found.append(problem)
        if len(self.found) >= MAX_PROBLEMS:
            raise InputError(self.found)

    def __enter__(self) -> Problems:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended_by = error.problems if isinstance(error, InputError) else ()
        if self.found and (kind is None or ended_by):
            raise InputError([*self.found, *(one for one in ended_by if one not in self.found)]) from error


def closest(name: object, candidates: Iterable[str]) -> str:
    """A hint naming what exists, the nearest to what was given first.

    >>> closest("Rng", ["Switch", "Ring"])
    "did you mean 'Ring'? one of: Ring, Switch"
    """
    known, text = sorted(set(candidates)), str(name)
    near = difflib.get_close_matches(text, known, n=1, cutoff=0.5)
    if not near:
        folded = {candidate.lower(): candidate for candidate in known}
        near = [folded[match] for match in difflib.get_close_matches(text.lower(), folded, n=1, cutoff=0.5)]
    more = f" and {len(known) - MOST_NAMED:,} more" if len(known) > MOST_NAMED else ""
    there = f"one of: {', '.join(known[:MOST_NAMED])}{more}" if known else "there are none"
    return f"did you mean '{near[0]}'? {there}" if near else there


def printable(text: str) -> str:
    """Names come from files: what a terminal could take for a command is shown as a question mark."""
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
