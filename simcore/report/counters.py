"""How busy something is over time: what timelines show as counters, and the links that are worth one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simcore.report.queues import deepest, most_waiting
from simcore.report.selection import View
from simcore.timeline.breakdown import coverage, merge
from simcore.timeline.events import LinkTable, Timeline

__all__ = ["BusyLink", "busiest_links", "queues", "samples"]

Ints = NDArray[np.int64]

NUM_SAMPLES = 200
MOST_LINKS = 8
MOST_LOOKED_AT = 16  # of links that are equally hot


@dataclass(frozen=True, slots=True, eq=False)
class BusyLink:
    """A link and when it was occupied: disjoint intervals, ascending; `share` of the run."""

    src: str
    dst: str
    share: float
    start_ns: Ints
    end_ns: Ints

    @property
    def title(self) -> str:
        """Its ends."""
        return f"link {self.src} > {self.dst}"


def samples(start_ns: Ints, end_ns: Ints, view: View) -> Iterator[tuple[int, float]]:
    """Times, and the percentage of the time until the next one that the union of the intervals covers; 0 at the end.

    The area below this curve is the time covered.
    """
    num_samples = min(NUM_SAMPLES, view.end_ns - view.start_ns)
    edges = np.linspace(view.start_ns, view.end_ns, num_samples + 1).astype(np.int64)
    shares: NDArray[np.float64] = coverage(start_ns, end_ns, edges)
    yield from zip(edges.tolist(), [*(100 * shares).tolist(), 0.0], strict=True)


def queues(timeline: Timeline, view: View) -> Iterator[tuple[str, list[tuple[int, float]]]]:
    """The queues that matter most: their links, and times with the most that waits until the next one."""
    links = timeline.links
    if links is None or links.queues is None:
        return
    edges = np.linspace(view.start_ns, view.end_ns, min(NUM_SAMPLES, view.end_ns - view.start_ns) + 1).astype(np.int64)
    for link in deepest(links.queues):
        waiting = [*most_waiting(links.queues, link, edges), 0]
        yield f"queue {links.src[link]} > {links.dst[link]}", [*zip(edges.tolist(), map(float, waiting), strict=True)]


def busiest_links(timeline: Timeline) -> list[BusyLink]:
    """The hottest links, the hottest first; of links that are occupied at the same times only the first."""
    links = timeline.links
    if links is None or links.use is None:
        return []
    found: dict[bytes, BusyLink] = {}
    for link in _hot(links):
        start_ns, end_ns = merge(*links.use.of(link))
        share = int(links.busy_ns[link]) / max(timeline.time_ns, 1)
        known = BusyLink(links.src[link], links.dst[link], share, start_ns, end_ns)
        found.setdefault(start_ns.tobytes() + end_ns.tobytes(), known)
        if len(found) == MOST_LINKS:
            break
    return [*found.values()]


def _hot(links: LinkTable) -> Iterator[int]:
    """Links from the hottest on; few of each that are equally hot."""
    heat = np.stack([links.busy_ns, links.size_bytes], axis=1)
    kinds, kind = np.unique(heat, axis=0, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    bounds = np.searchsorted(kind[order], np.arange(len(kinds) + 1))
    for each in reversed(range(len(kinds))):
        if kinds[each, 0]:
            yield from order[bounds[each] : bounds[each + 1]][:MOST_LOOKED_AT].tolist()
