"""ASTRA-sim's log of issued and completed nodes, on the lanes that Chakra's timelines have.

Lines are `issue,npu_id=0,tick=0,node_id=0,node_name=...` and `callback,...`; the position of a value counts, not its
key.
"""

from __future__ import annotations

from typing import NamedTuple

from simcore.documents import read_text
from simcore.errors import Location, Problem, Problems

MOST_DIGITS = 18  # of a number of 64 bits
LANES = ("local memory", "remote memory", "computation", "communication")
WORDS = {"MEM_LOAD": 0, "MEM_STORE": 0, "COMP": 2, "COMM": 3}
_LINE = "issue,npu_id=0,tick=0,node_id=0,node_name=NAME"


class Span(NamedTuple):
    """A node that was issued and completed; times in ticks."""

    npu: int
    node: int
    name: str
    start: int
    end: int


def spans(path: str) -> list[Span]:
    """The nodes of a log in the order of their completion; InputError names the lines at fault."""
    issued: dict[tuple[int, int], int] = {}
    found: list[Span] = []
    with Problems() as problems:
        for number, line in enumerate(read_text(path).splitlines(), 1):
            if not line.strip():
                continue
            try:
                event, npu, tick, node, name = _parts(line)
                start = issued.pop((npu, node)) if event == "callback" else issued.setdefault((npu, node), tick)
            except (ValueError, KeyError) as error:
                text = "completed but never issued" if isinstance(error, KeyError) else f"no event: {error}"
                problems.add(Problem(Location(path, number, 1), text, _LINE, line[:80], source=line))
                continue
            if event == "callback":
                found.append(Span(npu, node, name, start, tick))
    return found


def _parts(line: str) -> tuple[str, int, int, int, str]:
    """Event, NPU, tick, node and name of a line."""
    event, *values = line.strip().split(",", 4)
    if event not in {"issue", "callback"} or len(values) != 4:
        raise ValueError("expected 'issue' or 'callback' and four values")
    npu, tick, node, name = (value.partition("=")[2] for value in values)
    if max(len(npu), len(tick), len(node)) > MOST_DIGITS:
        raise ValueError(f"a number of more than {MOST_DIGITS} digits")
    return event, int(npu), int(tick), int(node), name


def lane(name: str) -> int:
    """Which of LANES, by the first part of a node's name that is known; access to remote memory has its own."""
    if "REMOTE" in name:
        return 1
    return next((lane for word, lane in WORDS.items() if word in name), 2)
