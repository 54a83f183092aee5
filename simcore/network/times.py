"""When links are occupied, noted transfer by transfer while a run goes on."""

from __future__ import annotations

from array import array

import numpy as np

from simcore.network.topology.fabric import IntArray

MOST_TIMES = 10_000_000  # transfers over links; a run with more keeps none


class Times:
    """Rows of (link, begin, end)."""

    def __init__(self) -> None:
        self._rows = array("q")

    def add(self, link: int, start_ns: int, end_ns: int) -> None:
        """A transfer occupies a link."""
        if len(self._rows) <= 3 * MOST_TIMES:
            self._rows.extend((link, start_ns, end_ns))

    def extend(self, rows: IntArray) -> None:
        """More of them."""
        room = MOST_TIMES + 1 - len(self)
        self._rows.frombytes(rows[: max(room, 0)].tobytes())

    def __len__(self) -> int:
        return len(self._rows) // 3

    def again(self, first: int, times: int, period_ns: int) -> None:
        """All since the `first` come again and again, each time a period later."""
        again(self._rows, first, times, (0, period_ns, period_ns), MOST_TIMES + 1)

    def rows(self) -> IntArray | None:
        """All of them; None when there were too many."""
        if len(self._rows) > 3 * MOST_TIMES:
            return None
        return np.array(self._rows, np.int64).reshape(-1, 3)


def again(rows: array[int], first: int, times: int, step: tuple[int, int, int], most: int) -> None:
    """Write rows of three numbers since the `first` again and again, each time by a step more; `most` rows in all."""
    period = np.array(rows[3 * first :], np.int64).reshape(-1, 3)
    room = most - len(rows) // 3
    if len(period) and room > 0:
        number = np.arange(1, min(times, -(-room // len(period))) + 1)
        added = period + number[:, None, None] * np.array(step)
        rows.frombytes(added.reshape(-1, 3)[:room].tobytes())
