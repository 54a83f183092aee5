"""Themis (ISCA 2022): chunks visit the dimensions by load, the least loaded first. Figures and corners: ASTRA-sim's."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_MEBIBYTE = 1 << 20
_SMALLEST_SHARE = 16


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
            return self._plain(order, chunk_bytes, left_bytes, gathers)
        size_bytes = min(left_bytes, slack if self._flexible else chunk_bytes)
        self._add_loads(order, slack if self._flexible else chunk_bytes, gathers, range(len(self._sizes)))
        return order, size_bytes

    def _plain(self, order: Sequence[int], chunk_bytes: int, left_bytes: int, gathers: bool) -> tuple[list[int], int]:
        """The dimensions as they are; an all-gather's loads are booked from the other end."""
        size_bytes = min(left_bytes, chunk_bytes)
        self._sorted.sort()
        booked = self._sorted[::-1] if gathers else self._sorted
        self._add_loads(sorted(order), size_bytes if self._flexible else chunk_bytes, gathers, booked)
        return sorted(order), size_bytes

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
