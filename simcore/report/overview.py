"""Every rank over the whole run as shares of time: what can be shown of runs too large for slices."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simcore.report.selection import rank_label
from simcore.timeline.breakdown import COMMUNICATION, COMPUTING, coverage, of_kinds
from simcore.timeline.events import EventKind, EventTable, Timeline

MOST_ROWS = 256
NUM_BINS = 400

Shares = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """Shares of time by class and bin, each of shape (classes, bins), between 0 and 1.

    `classes` are spread evenly where the timeline has more than `MOST_ROWS`. `edges_ns` are the bins' bounds.
    """

    classes: tuple[int, ...]
    labels: tuple[str, ...]
    edges_ns: NDArray[np.int64]
    compute: Shares
    exposed: Shares

    def to_dict(self) -> dict[str, object]:
        """JSON for the page: shares as bytes (255 = the whole bin) in base64, row by row."""
        return {
            "labels": self.labels,
            "edges_ns": self.edges_ns.tolist(),
            "compute": _bytes(self.compute),
            "exposed": _bytes(self.exposed),
        }


def overview(timeline: Timeline, names: Mapping[int, str] | None = None) -> Overview:
    """Computing and exposed communication of every class of ranks in equal bins of the run's time.

    `names` are of classes that are not called by their ranks.
    """
    num_rows = min(len(timeline.ranks), MOST_ROWS)
    classes = np.unique(np.linspace(0, len(timeline.ranks) - 1, num_rows).round().astype(np.int64))
    num_bins = min(NUM_BINS, max(timeline.time_ns, 1))
    edges_ns = np.linspace(0, max(timeline.time_ns, 1), num_bins + 1).round().astype(np.int64)
    busy = shares_of_time(timeline.events, (*COMPUTING, *COMMUNICATION), classes, edges_ns)
    compute = shares_of_time(timeline.events, COMPUTING, classes, edges_ns)
    known = names or {}
    labels = tuple(known.get(each) or rank_label(timeline.ranks[each]) for each in classes.tolist())
    return Overview(tuple(classes.tolist()), labels, edges_ns, compute, busy - compute)


def shares_of_time(
    events: EventTable, kinds: tuple[EventKind, ...], classes: NDArray[np.int64], edges_ns: NDArray[np.int64]
) -> Shares:
    """How much of each bin the union of a class's events of these kinds covers, class by class."""
    chosen = of_kinds(events, kinds)
    order = np.argsort(chosen.npu_class, kind="stable")
    bounds = np.searchsorted(chosen.npu_class[order], [classes, classes + 1])
    rows = (order[first:last] for first, last in bounds.T)
    return np.array([coverage(chosen.start_ns[each], chosen.end_ns[each], edges_ns) for each in rows])


def _bytes(shares: Shares) -> str:
    levels = np.clip(np.rint(255 * shares), 0, 255).astype(np.uint8)
    return base64.b64encode(levels.tobytes()).decode()
