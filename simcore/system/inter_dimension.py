"""In which order a chunk visits the dimensions: ascending, round robin, in colours, or by load (Themis, ISCA 2022).

The figures and corner cases are ASTRA-sim 1.0's; colours, each starting in a dimension of its own, are native.
"""

from __future__ import annotations

from collections.abc import Sequence

from simcore.system.collectives import ROOTED
from simcore.system.streams import Lane, Request, Turns
from simcore.system.themis import Themis
from simcore.workload.model import CollectiveKind

_GATHER = CollectiveKind.ALL_GATHER
_SPREADING = {_GATHER, CollectiveKind.BROADCAST, CollectiveKind.SCATTER}
NEVER_BALANCED = {CollectiveKind.ALL_TO_ALL, CollectiveKind.BARRIER, *ROOTED}
THEMIS = ("themis", "themisFlex")


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
