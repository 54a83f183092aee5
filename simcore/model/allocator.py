"""PyTorch's caching allocator of one stream: what is asked for, rounded, and cut from segments that the device keeps.

Sizes are those of c10/cuda/CUDACachingAllocator.cpp: blocks are multiples of 512 bytes; up to 1 MiB they are cut from
segments of 2 MiB, below 10 MiB from segments of 20 MiB, above they have segments of their own in multiples of 2 MiB.
The smallest free block that is large enough is taken, and cut where enough is left. Segments are never given back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

_BLOCK, _SMALL, _MIDDLE = 512, 1 << 20, 10 << 20
_SMALL_SEGMENT, _SEGMENT, _MULTIPLE = 2 << 20, 20 << 20, 2 << 20


@dataclass(slots=True, eq=False)
class Piece:
    """A block in its segment, with those beside it."""

    size: int
    number: int
    small: bool
    asked: int = 0
    before: Piece | None = None
    behind: Piece | None = None


@dataclass(slots=True)
class Allocator:
    """Bytes: `asked` for by what lives, `allocated` to it after rounding, `reserved` in all segments."""

    asked: int = 0
    allocated: int = 0
    reserved: int = 0
    _made: int = 0
    _free: dict[bool, list[tuple[int, int]]] = field(default_factory=lambda: {True: [], False: []})
    _pieces: dict[int, Piece] = field(default_factory=dict)

    def take(self, size: int) -> Piece:
        """Memory for so many bytes."""
        rounded = max(_BLOCK, -(-size // _BLOCK) * _BLOCK)
        small = rounded <= _SMALL
        free = self._free[small]
        at = bisect_left(free, (rounded, -1))
        piece = self._pieces.pop(free.pop(at)[1]) if at < len(free) else self._segment(rounded, small=small)
        left = piece.size - rounded
        if left >= _BLOCK if small else left > _SMALL:
            self._cut(piece, rounded)
        piece.asked = size
        self.asked, self.allocated = self.asked + size, self.allocated + piece.size
        return piece

    def give(self, piece: Piece) -> None:
        """Free a block; it becomes one with free blocks beside it."""
        self.asked, self.allocated = self.asked - piece.asked, self.allocated - piece.size
        before, behind = piece.before, piece.behind
        if behind and behind.number in self._pieces:
            self._forget(behind)
            piece.size, piece.behind = piece.size + behind.size, behind.behind
            if piece.behind:
                piece.behind.before = piece
        if before and before.number in self._pieces:
            self._forget(before)
            before.size, before.behind = before.size + piece.size, piece.behind
            if before.behind:
                before.behind.before = before
            piece = before
        self._keep(piece)

    def _segment(self, rounded: int, *, small: bool) -> Piece:
        whole = _SMALL_SEGMENT if small else _SEGMENT if rounded < _MIDDLE else -(-rounded // _MULTIPLE) * _MULTIPLE
        self.reserved += whole
        return self._piece(whole, small=small)

    def _piece(self, size: int, *, small: bool) -> Piece:
        self._made += 1
        return Piece(size, self._made, small)

    def _cut(self, piece: Piece, size: int) -> None:
        rest = self._piece(piece.size - size, small=piece.small)
        rest.before, rest.behind = piece, piece.behind
        if rest.behind:
            rest.behind.before = rest
        piece.size, piece.behind = size, rest
        self._keep(rest)

    def _keep(self, piece: Piece) -> None:
        self._pieces[piece.number] = piece
        insort(self._free[piece.small], (piece.size, piece.number))

    def _forget(self, piece: Piece) -> None:
        del self._pieces[piece.number]
        free = self._free[piece.small]
        del free[bisect_left(free, (piece.size, piece.number))]
