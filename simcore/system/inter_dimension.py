"""In which order a chunk visits the dimensions: ascending, round robin, in colours, or by load (Themis, ISCA 2022).

The figures and corner cases are ASTRA-sim 1.0's; colours, each starting in a dimension of its own, are native.
"""

from __future__ import annotations

from collections.abc import Sequence

from simcore.system.collectives import ROOTED
from simcore.system.streams import Lane, Request
from simcore.workload.model import CollectiveKind

__all__ = ["DimensionOrder"]

_GATHER = CollectiveKind.ALL_GATHER
_SPREADING = {_GATHER, CollectiveKind.BROADCAST, CollectiveKind.SCATTER}
_MEBIBYTE = 1 << 20
_SMALLEST_SHARE = 16


class DimensionOrder:
    """The policy of one NPU.

    `sizes` and `bandwidths` (any common unit) are those of all logical dimensions; a request names the ones it uses.
    """

    def __init__(self, policy: str, sizes: Sequence[int], bandwidths: Sequence[float]):
        self._policy = policy
        self._sizes = list(sizes)
        reference = next((bandwidth for bandwidth in bandwidths if bandwidth), 1.0)  # a single NPU has no links
        self._speeds = [bandwidth / reference for bandwidth in bandwidths]
        self._turn = 0
        self._loads = [0.0] * len(sizes)
        self._sorted = list(range(len(sizes)))
        self._last_issue_ns = -1

    def balances(self, kind: CollectiveKind) -> bool:
        """Whether loads decide; they never do for an all-to-all, a barrier or a rooted collective."""
        never = {CollectiveKind.ALL_TO_ALL, CollectiveKind.BARRIER, *ROOTED}
        return self._policy in {"themis", "themisFlex"} and kind not in never

    def colours(self, request: Request) -> int:
        """How many chunks start in different dimensions at once: as many as there are dimensions, or one."""
        return len(request.lanes) if self._policy == "colours" else 1

    def lanes(self, request: Request, number: int) -> list[Lane]:
        """The dimensions of a collective's next chunk, its `number`-th, in order.

        All that spreads data starts from the outermost.
        """
        if self._policy == "colours":
            first = number % len(request.lanes)
            turned = [*request.lanes[first:], *request.lanes[:first]]
            return turned[::-1] if request.kind in _SPREADING else turned
        order = list(range(len(self._sizes)))
        if request.kind in _SPREADING:
            order.reverse()
        if self._policy == "roundRobin":
            order = order[self._turn :] + order[: self._turn]
            self._turn = (self._turn - 1) % len(order)
        lanes = {lane.position: lane for lane in request.lanes}
        return [lanes[position] for position in order if position in lanes]

    def balanced(self, request: Request, chunk_bytes: int, now_ns: int) -> tuple[list[Lane], int]:
        """The dimensions of the next chunk, least loaded first, and the chunk's size.

        When the difference between the loads is too small for the chunk to even out, the plain order is used.
        """
        if now_ns > self._last_issue_ns:
            self._loads = [0.0] * len(self._sizes)
        self._last_issue_ns = now_ns
        gathers = request.kind == _GATHER
        lanes = {lane.position: lane for lane in request.lanes}
        self._sorted.sort(key=self._loads.__getitem__)
        if gathers:
            self._sorted.reverse()
        order = [position for position in self._sorted if position in lanes]
        slack = self._slack_bytes(order, gathers)
        flexible = self._policy == "themisFlex"
        if slack < (chunk_bytes if flexible else chunk_bytes // _SMALLEST_SHARE):
            order = sorted(lanes)
            self._add_loads(order, chunk_bytes, gathers, from_the_other_end=gathers)
        else:
            chunk_bytes = slack if flexible else chunk_bytes
            self._add_loads(order, chunk_bytes, gathers, from_the_other_end=False)
        return [lanes[position] for position in order], chunk_bytes

    def _slack_bytes(self, order: Sequence[int], gathers: bool) -> int:
        """Bytes that would even out the loads of the first usable dimension and the last one."""
        first, last = order[0], order[-1] if gathers else self._sorted[-1]
        if self._sizes[last if gathers else first] == 1:
            return 0  # an algorithm of the whole machine, placed at a dimension of one NPU
        difference = abs(self._loads[last] - self._loads[first])
        if not gathers:
            ranks = self._sizes[first]
            return int(difference * self._speeds[first] / ((ranks - 1) / ranks) * _MEBIBYTE)
        slack = int(difference * self._speeds[last] / (self._sizes[last] - 1) * _MEBIBYTE)
        for position in order[1:-1]:
            slack //= self._sizes[position]
        return slack

    def _add_loads(self, order: Sequence[int], chunk_bytes: int, gathers: bool, *, from_the_other_end: bool) -> None:
        """Charge the dimensions along `order`; ASTRA-sim's plain all-gather books them from the other end."""
        for position in order:
            place = len(self._sizes) - 1 - position if from_the_other_end else position
            ranks = self._sizes[position]
            share = ranks - 1 if gathers else (ranks - 1) / ranks
            self._loads[place] += chunk_bytes / _MEBIBYTE * share / self._speeds[position]
            chunk_bytes = chunk_bytes * ranks if gathers else chunk_bytes // ranks
