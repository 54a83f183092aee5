"""Watts of a run's boards over time: at work, or waiting."""

from __future__ import annotations

from math import fsum

import numpy as np

from simcore.compute.accelerators import accelerator
from simcore.compute.power import board_w
from simcore.report.document import PowerRow
from simcore.timeline.breakdown import shares_of_time
from simcore.timeline.events import EventKind, Timeline

NUM_BINS = 200


def power_over_time(timeline: Timeline, name: str) -> PowerRow:
    """Every NPU as a board of that accelerator, which computes 16-bit products whenever it computes.

    Hosts, switches and cooling are not in it. InputError where the accelerator states no power limit.
    """
    device, span_ns = accelerator(name), max(timeline.time_ns, 1)
    edges_ns = np.linspace(0, span_ns, min(NUM_BINS, span_ns) + 1).round().astype(np.int64)
    computing = shares_of_time(timeline.events, (EventKind.COMPUTE,), np.arange(len(timeline.ranks)), edges_ns)
    boards, bins_ns = np.array([len(ranks) for ranks in timeline.ranks]), np.diff(edges_ns)
    busy_ns = boards @ (computing * bins_ns).round().astype(np.int64)  # whole, so that folding changes no digit
    watts = timeline.npus * board_w(device, busy_ns / (timeline.npus * bins_ns))
    mean_w = fsum((watts * bins_ns).tolist()) / span_ns
    return {
        "accelerator": device.name,
        "board_w": mean_w / timeline.npus,
        "energy_j": mean_w * timeline.time_ns * 1e-9,
        "edges_ns": edges_ns.tolist(),
        "watts": watts.tolist(),
    }
