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

    def rows(self) -> IntArray | None:
        """All of them; None when there were too many."""
        if len(self._rows) > 3 * MOST_TIMES:
            return None
        return np.array(self._rows, np.int64).reshape(-1, 3)
