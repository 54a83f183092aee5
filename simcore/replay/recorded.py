"""Timelines of what was recorded rather than simulated: execution traces, and ASTRA-sim's log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from simcore.engine.run import simulate
from simcore.engine.settings import Settings
from simcore.errors import InputError
from simcore.network.topology.model import Dimension, Topology
from simcore.profiles import profiles
from simcore.report.model import Report
from simcore.system.config import SystemConfig
from simcore.timeline.events import NO_LAYER, EventBuffer, EventKind, Timeline
from simcore.workload.chakra import log_timeline
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
    return Report(replace(timeline, ranks=named), "native", "congestion-free", (), warnings)


def of_log(path: str, mhz: float = 1000.0) -> Report:
    """ASTRA-sim's log of issued and completed nodes; InputError names the lines at fault."""
    found = log_timeline.spans(path)
    if not found:
        raise InputError.at(path, "no node is issued and completed in this log")
    npus = sorted({span.npu for span in found})
    class_of = {npu: number for number, npu in enumerate(npus)}
    events, ends = EventBuffer(), dict.fromkeys(npus, 0)
    for span in found:
        start_ns, end_ns = round(span.start * 1000 / mhz), round(span.end * 1000 / mhz)
        lane, name = log_timeline.lane(span.name), events.name(span.name)
        events.append((class_of[span.npu], lane, start_ns, end_ns, KINDS[lane], name, NO_LAYER, -1, 0, 0))
        ends[span.npu] = max(ends[span.npu], end_ns)
    time_ns = max(ends.values())
    ranks, finish_ns = tuple([npu] for npu in npus), tuple(ends.values())
    timeline = Timeline(events.table(), time_ns, ((0, time_ns),), ranks, finish_ns, streams=log_timeline.LANES)
    return Report(timeline, "astra-sim-2", "")
