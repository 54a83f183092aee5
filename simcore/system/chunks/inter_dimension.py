"""In which order a chunk visits the dimensions: ascending, round robin, in colours, or by load (Themis, ISCA 2022).

The figures and corner cases are ASTRA-sim 1.0's; colours, each starting in a dimension of its own, are native.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from simcore.system.collectives import ROOTED
from simcore.system.streams import Lane, Request, Turns
from simcore.workload.model import CollectiveKind

_GATHER = CollectiveKind.ALL_GATHER
_SPREADING = {_GATHER, CollectiveKind.BROADCAST, CollectiveKind.SCATTER}
NEVER_BALANCED = {CollectiveKind.ALL_TO_ALL, CollectiveKind.BARRIER, *ROOTED}
THEMIS = ("themis", "themisFlex")
_MEBIBYTE, _SMALLEST_SHARE = 1 << 20, 16


class DimensionOrder:
    """The policy of one NPU.

    `sizes` and `bandwidths` (any common unit) are those of all logical dimensions; a request names the ones it uses.
    With `afresh`, no collective finds loads of another: where NPUs begin together they must agree, whenever each sends.
    """

    def __init__(self, policy: str, sizes: Sequence[int], bandwidths: Sequence[float], *, afresh: bool = False):
        self._policy, self._dims, self._afresh = policy, len(sizes), afresh
        reference = next((bandwidth for bandwidth in bandwidths if bandwidth), 1.0)  # a single NPU has no links
        speeds = [bandwidth / reference for bandwidth in bandwidths]
        self._themis = Themis(sizes, speeds, flexible=policy == "themisFlex")
        self._turn = 0

    def balances(self, kind: CollectiveKind) -> bool:
        """Whether loads decide; they never do for an all-to-all, a barrier or a rooted collective."""
        return self._policy in THEMIS and kind not in NEVER_BALANCED

    @property
    def steady(self) -> bool:
        """Whether equal collectives get equal orders."""
        return self._policy not in {*THEMIS, "roundRobin"}

    def colours(self, request: Request) -> int:
        """How many chunks start in different dimensions at once: as many as there are dimensions, or one."""
        return len(request.lanes) if self._policy == "colours" else 1

    def begin(self, now_ns: int, order: Turns) -> None:
        """A collective is issued, by the NPUs in some order."""
        if self._afresh:
            self._themis.clear()
        else:
            self._themis.begin(now_ns, late=bool(order) and order[0] != 0)

    def pass_over(self) -> None:
        """A collective that nobody takes part in still takes its turn (ASTRA-sim)."""
        self._turn = (self._turn + 1) % self._dims

    def lanes(self, request: Request, number: int) -> list[Lane]:
        """The dimensions of a collective's next chunk, its `number`-th, in order.

        All that spreads data starts from the outermost.
        """
        if self._policy == "colours":
            first = number % len(request.lanes)
            turned = [*request.lanes[first:], *request.lanes[:first]]
            return turned[::-1] if request.kind in _SPREADING else turned
        order = list(range(self._dims))
        if request.kind in _SPREADING:
            order.reverse()
        if self._policy == "roundRobin":
            order = order[self._turn :] + order[: self._turn]
            self._turn = (self._turn + 1) % len(order)
        lanes = {lane.position: lane for lane in request.lanes}
        return [lanes[position] for position in order if position in lanes]

    def balanced(self, request: Request, chunk_bytes: int, left_bytes: int) -> tuple[list[Lane], int]:
        """The dimensions of the next chunk, least loaded first, and its size; a full one has `chunk_bytes`."""
        lanes = {lane.position: lane for lane in request.lanes}
        order, size_bytes = self._themis.chunk(lanes, chunk_bytes, left_bytes, gathers=request.kind == _GATHER)
        return [lanes[position] for position in order], size_bytes


class Themis:
    """Loads of all logical dimensions, in ms of the first one's bandwidth per MiB, and the order they were last in.

    `speeds` are bandwidths in units of the first one's. With `flexible`, a chunk is as large as the difference between
    loads (themisFlex).
    """

    def __init__(self, sizes: Sequence[int], speeds: Sequence[float], *, flexible: bool):
        self._sizes, self._speeds, self._flexible = sizes, speeds, flexible
        self._last_issue_ns, self._overdue = -1, False
        self.clear()

    def clear(self) -> None:
        """Forget all loads."""
        self._loads = [0.0] * len(self._sizes)
        self._sorted = list(range(len(self._sizes)))

    def begin(self, now_ns: int, *, late: bool) -> None:
        """A collective is issued: in a later nanosecond than the one before it finds no load.

        NPU 0 clears the loads. When it is `late`, another one has planned all chunks on the old ones before.
        """
        if self._overdue or (now_ns > self._last_issue_ns and not late):
            self.clear()
        self._overdue = late and now_ns > self._last_issue_ns
        self._last_issue_ns = now_ns

    def chunk(
        self, usable: Collection[int], chunk_bytes: int, left_bytes: int, *, gathers: bool
    ) -> tuple[list[int], int]:
        """The usable dimensions in the order of the next chunk, and how large it is.

        When the loads differ by too little for a chunk of `chunk_bytes` to even them out, the plain order is used.
        """
        self._sorted.sort(key=self._loads.__getitem__)
        if gathers:
            self._sorted.reverse()
        order = [place for place in self._sorted if place in usable]
        if not order:
            return [], min(left_bytes, chunk_bytes)
        slack = self._slack_bytes(order, gathers)
        if slack < (chunk_bytes if self._flexible else chunk_bytes // _SMALLEST_SHARE):
            size_bytes = min(left_bytes, chunk_bytes)
            self._sorted.sort()
            booked = self._sorted[::-1] if gathers else self._sorted  # an all-gather's loads are from the other end
            self._add_loads(sorted(order), size_bytes if self._flexible else chunk_bytes, gathers, booked)
            return sorted(order), size_bytes
        size_bytes = min(left_bytes, slack if self._flexible else chunk_bytes)
        self._add_loads(order, slack if self._flexible else chunk_bytes, gathers, range(len(self._sizes)))
        return order, size_bytes

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
        for place in order[:-1]:
            slack //= self._sizes[place]
        return slack

    def _add_loads(self, order: Sequence[int], chunk_bytes: int, gathers: bool, booked: Sequence[int]) -> None:
        """Charge a chunk, whole even where less is left, to the dimensions that `booked` names in place of `order`."""
        for place in order:
            ranks = self._sizes[place]
            share = ranks - 1 if gathers else (ranks - 1) / ranks
            self._loads[booked[place]] += chunk_bytes / _MEBIBYTE * share / self._speeds[place]
            chunk_bytes = chunk_bytes * ranks if gathers else chunk_bytes // ranks
