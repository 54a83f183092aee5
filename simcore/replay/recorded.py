"""Timelines of what was recorded rather than simulated: execution traces, and ASTRA-sim's log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simcore.documents import read_text
from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError, Location, Problem, Problems
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.report.model import Input, Report
from simcore.system.config import SystemConfig
from simcore.timeline.events import NO_LAYER, EventBuffer, EventKind, Timeline
from simcore.workload.chakra.reader import distinct_ranks
from simcore.workload.model import GraphSet

KINDS = EventKind.MEMORY, EventKind.MEMORY, EventKind.COMPUTE, EventKind.COLLECTIVE  # of a log's lanes


def of_trace(trace: str) -> Report:
    """What a trace says on its own: every node takes its recorded duration and starts as soon as it may.

    Dependencies, streams and the host's thread hold a node back; no network does, so ranks do not wait for each other,
    and communication without a recorded duration takes no time. `trace` is a file, a folder or a prefix.
    """
    traces, trace_of_rank = distinct_ranks(trace)
    ranks = sorted(trace_of_rank)
    numbers = np.array([trace_of_rank[rank] for rank in ranks], np.int32)
    graphs = GraphSet(tuple(found.graph for found in traces), numbers, {}, Path(trace).name)
    machine = Topology((Dimension("Switch", len(ranks), 1e9, 0.0),))
    settings = Settings(network="congestion-free")
    timeline = simulate(graphs, machine, SystemConfig(replay_only=True), profiles.get("native"), settings)
    named = tuple([ranks[position] for position in members] for members in timeline.ranks)
    warnings = tuple(text for found in traces for text in found.warnings)
    return Report(
        replace(timeline, ranks=named), "native", "congestion-free", (Input("workload", trace, ""),), warnings
    )


def of_log(path: str, mhz: float | None = None) -> Report:
    """ASTRA-sim's log of issued and completed nodes, on the lanes that Chakra's timelines have; of 1 GHz by default."""
    mhz = mhz or 1000.0
    found = spans(path)
    if not found:
        raise InputError.at(path, "no node is issued and completed in this log")
    npus = sorted({span.npu for span in found})
    class_of = {npu: number for number, npu in enumerate(npus)}
    events, ends = EventBuffer(), dict.fromkeys(npus, 0)
    for span in found:
        start_ns, end_ns = round(span.start * 1000 / mhz), round(span.end * 1000 / mhz)
        lane, name = next((lane for word, lane in WORDS.items() if word in span.name), 2), events.name(span.name)
        events.append((class_of[span.npu], lane, start_ns, end_ns, KINDS[lane], name, NO_LAYER, -1, 0, 0))
        ends[span.npu] = max(ends[span.npu], end_ns)
    time_ns = max(ends.values())
    ranks, finish_ns = tuple([npu] for npu in npus), tuple(ends.values())
    timeline = Timeline(events.table(), time_ns, ((0, time_ns),), ranks, finish_ns, streams=LANES)
    return Report(timeline, "astra-sim-2", "", (Input("workload", path, ""),))


MOST_DIGITS = 18  # of a number of 64 bits
LANES = ("local memory", "remote memory", "computation", "communication")
WORDS = {"REMOTE": 1, "MEM_LOAD": 0, "MEM_STORE": 0, "COMP": 2, "COMM": 3}  # part of a node's name -> its lane
_LINE = "issue,npu_id=0,tick=0,node_id=0,node_name=NAME"


class Span(NamedTuple):
    """A node that was issued and completed; times in ticks."""

    npu: int
    node: int
    name: str
    start: int
    end: int


def spans(path: str) -> list[Span]:
    """The nodes of a log in the order of their completion; InputError names the lines at fault.

    Lines are `issue,npu_id=0,tick=0,node_id=0,node_name=...` and `callback,...`; the position of a value counts, not
    its key.
    """
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
            if tick < start:
                text, expected = "completed before it was issued", f"tick={start} or later"
                problems.add(Problem(Location(path, number, 1), text, expected, f"tick={tick}", source=line))
            elif event == "callback":
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
    numbers = int(npu), int(tick), int(node)
    if min(numbers) < 0:
        raise ValueError(f"{min(numbers)} is below 0")
    return event, *numbers, name
