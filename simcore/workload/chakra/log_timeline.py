"""ASTRA-sim's log of issued and completed nodes, and its Chrome trace with Chakra's lanes.

Lines are `issue,npu_id=0,tick=0,node_id=0,node_name=...` and `callback,...`; the position of a value counts, not its
key.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from simcore.documents import read_text
from simcore.errors import Location, Problem, Problems

__all__ = ["Span", "chrome_trace", "lane", "spans"]

MOST_DIGITS = 18  # of a number of 64 bits
LANES = {"MEM_LOAD": 1, "MEM_STORE": 1, "COMP": 3, "COMM": 4}
LANE_NAMES = {1: "local memory", 2: "remote memory", 3: "computation", 4: "communication"}
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


def chrome_trace(path: str, mhz: float = 1000.0) -> str:
    """JSON for Perfetto and chrome://tracing, microseconds, one process an NPU; InputError names the lines at fault."""
    found = spans(path)
    names = [
        {"ph": "M", "name": "thread_name", "pid": npu, "tid": lane, "args": {"name": text}}
        for npu in sorted({span.npu for span in found})
        for lane, text in LANE_NAMES.items()
    ]
    events: list[dict[str, Any]] = []
    for span in found:
        place = {"pid": span.npu, "tid": lane(span.name), "ts": span.start / mhz, "dur": (span.end - span.start) / mhz}
        events.append({"ph": "X", "name": span.name, "args": {"node": span.node}, **place})
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": names + events}, sort_keys=True) + "\n"


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
    """Lane by the first part of a node's name that is known; a store to or load from remote memory has its own."""
    if "REMOTE" in name:
        return 2
    return next((lane for word, lane in LANES.items() if word in name), 3)
