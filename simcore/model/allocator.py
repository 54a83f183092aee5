"""PyTorch's caching allocator of one stream: what is asked for, rounded, and cut from segments that the device keeps.

Sizes are those of c10/cuda/CUDACachingAllocator.cpp: blocks are multiples of 512 bytes; up to 1 MiB they are cut from
segments of 2 MiB, below 10 MiB from segments of 20 MiB, above they have segments of their own in multiples of 2 MiB.
The smallest free block that is large enough is taken, and cut where enough is left. Segments are never given back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter

_BLOCK, _SMALL, _MIDDLE = 512, 1 << 20, 10 << 20
_SMALL_SEGMENT, _SEGMENT, _MULTIPLE = 2 << 20, 20 << 20, 2 << 20


@dataclass(slots=True, eq=False)
class Piece:
    """A block in its segment, with those beside it; `pool` has the free ones of its kind by size and number."""

    size: int
    number: int
    pool: list[tuple[int, int, Piece]]
    asked: int = 0
    free: bool = False
    before: Piece | None = None
    behind: Piece | None = None

    def give(self) -> None:
        """Into the pool."""
        self.free = True
        insort(self.pool, (self.size, self.number, self))

    def join(self, other: Piece) -> None:
        """With the free block behind it, or one that becomes free: one block."""
        if other.free:
            del self.pool[bisect_left(self.pool, (other.size, other.number, other))]
        self.size, self.behind = self.size + other.size, other.behind
        if self.behind:
            self.behind.before = self


@dataclass(slots=True)
class Allocator:
    """Bytes: `allocated` after rounding to what lives, `reserved` in all segments."""

    allocated: int = 0
    reserved: int = 0
    _numbers: Iterator[int] = field(default_factory=count)
    _small: list[tuple[int, int, Piece]] = field(default_factory=list)
    _large: list[tuple[int, int, Piece]] = field(default_factory=list)

    def take(self, size: int) -> Piece:
        """Memory for so many bytes."""
        rounded = max(_BLOCK, -(-size // _BLOCK) * _BLOCK)
        small = rounded <= _SMALL
        pool = self._small if small else self._large
        at = bisect_left(pool, rounded, key=itemgetter(0))
        piece = pool.pop(at)[2] if at < len(pool) else Piece(self._segment(rounded), next(self._numbers), pool)
        left = piece.size - rounded
        if left >= _BLOCK if small else left > _SMALL:
            rest = Piece(left, next(self._numbers), pool, before=piece, behind=piece.behind)
            if rest.behind:
                rest.behind.before = rest
            piece.size, piece.behind = rounded, rest
            rest.give()
        piece.asked, piece.free = size, False
        self.allocated += piece.size
        return piece

    def give(self, piece: Piece) -> None:
        """Free a block; it becomes one with free blocks beside it."""
        self.allocated -= piece.size
        if piece.behind and piece.behind.free:
            piece.join(piece.behind)
        before = piece.before
        if before and before.free:
            del before.pool[bisect_left(before.pool, (before.size, before.number, before))]
            before.join(piece)
            piece = before
        piece.give()

    def _segment(self, rounded: int) -> int:
        """A new one, large enough for so many bytes."""
        kept = _SMALL_SEGMENT if rounded <= _SMALL else _SEGMENT
        size = kept if rounded < _MIDDLE else -(-rounded // _MULTIPLE) * _MULTIPLE
        self.reserved += size
        return size
