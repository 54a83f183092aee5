"""Queues of chunks in a dimension: who waits where (ASTRA-sim's intra-dimension scheduling)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from simcore.workload.model import CollectiveKind

if TYPE_CHECKING:
    from simcore.system.streams import Stream

Insertion = Callable[["ChunkQueue", "Stream"], int]
"""Behind how many of those that wait a new chunk goes."""
_GATHER, _SCATTER = CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER


class ChunkQueue(Struct):
    """Chunks of one queue: the first `running` of them play, the others wait; at most `limit` play at a time."""

    limit: int
    streams: list[Stream] = field(default_factory=list)
    running: int = 0

    def add(self, stream: Stream, insertion: Insertion) -> None:
        """Let a chunk wait; all-reduce and all-to-all phases always by priority."""
        reorderable = stream.phase.kind in {_GATHER, _SCATTER}
        rule = insertion if reorderable else by_priority
        self.streams.insert(self.running + rule(self, stream), stream)

    @property
    def waiting(self) -> list[Stream]:
        """Those that do not play yet."""
        return self.streams[self.running :]

    def remove(self, stream: Stream) -> None:
        """Take out a chunk that has played."""
        self.streams.remove(stream)
        self.running -= 1

    def next(self) -> Stream | None:
        """The chunk that may play now, if any."""
        if self.running < min(self.limit, len(self.streams)):
            self.running += 1
            return self.streams[self.running - 1]
        return None


def _first(waiting: Sequence[Stream], stays_behind: Callable[[Stream], bool]) -> int:
    """Position of the first chunk that stays behind the new one."""
    return next((index for index, other in enumerate(waiting) if stays_behind(other)), len(waiting))


def by_priority(queue: ChunkQueue, new: Stream) -> int:
    """Higher priority first, equal ones in order of arrival."""
    return _first(queue.waiting, lambda other: other.priority < new.priority)


def smallest_first(queue: ChunkQueue, new: Stream) -> int:
    """Smaller phases first; a chunk with one more phase behind this one goes last."""
    if new.remaining == 1:
        return len(queue.waiting)
    return _first(queue.waiting, lambda other: other.phase.largest_bytes >= new.phase.largest_bytes)


def fewest_phases_first(queue: ChunkQueue, new: Stream) -> int:
    """Chunks with fewer phases left first."""
    return _first(queue.waiting, lambda other: other.remaining >= new.remaining)


def alternate(queue: ChunkQueue, new: Stream) -> int:
    """Reduce-scatter and all-gather in turn: past the first behind those that play, higher priority and turns."""
    waiting = queue.waiting
    # ASTRA-sim 1.0 looks at the one behind a running one without asking; where none runs, all waiting ones are asked.
    position = min(1, queue.running, len(waiting))
    while position < len(waiting):
        before = {other.phase.kind for other in waiting[max(0, position - 1) : position + 1]}
        if waiting[position].priority <= new.priority and before != {_GATHER, _SCATTER}:
            break
        position += 1
    return position


INSERTION: dict[str, Insertion] = {
    "FIFO": by_priority,
    "SCF": smallest_first,
    "lessRemainingPhaseFirst": fewest_phases_first,
    "RG": alternate,
}
