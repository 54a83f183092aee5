"""Which phases use which links until when: a phase that meets nobody may be solved by itself."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from simcore.network.topology.fabric import IntArray

__all__ = ["InUse", "MeetingError", "bits"]


class MeetingError(Exception):
    """Two phases want a link at one time: the run must be repeated message by message."""


class InUse:
    """The links that phases hold, by place: links of different places are never the same.

    A phase that begins when another ends does not meet it: its last byte has arrived.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, list[tuple[int, int]]] = {}

    def take(self, place: Hashable, links: int, now_ns: int, until_ns: int) -> None:
        """Hold links (a bit for each) from now on; MeetingError when somebody holds one of them."""
        held = [(links, until_ns)]
        for others, end_ns in self._held.get(place, ()):
            if end_ns > now_ns:
                if others & links:
                    raise MeetingError
                held.append((others, end_ns))
        self._held[place] = held


def bits(links: IntArray, count: int) -> int:
    """A number with a bit for each of some links, of `count` in all."""
    used = np.zeros(count, bool)
    used[links] = True
    return int.from_bytes(np.packbits(used, bitorder="little").tobytes(), "little")
