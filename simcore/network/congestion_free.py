"""Messages that meet nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simcore.network.congested import Network
from simcore.network.instant import Environment, after
from simcore.network.topology.fabric import IntArray


class CongestionFree(Network):
    """A network on which every message takes the time that `delay(src, dst, size_bytes)` says, for columns of ends."""

    foldable = False
    by_event = True

    def __init__(self, env: Environment, delay: Callable[[IntArray, IntArray, int], IntArray]):
        self._env, self._delay = env, delay
        self._known: dict[tuple[int, int, int], int] = {}
        self._free_ns: dict[tuple[Any, int, int], int] = {}

    def send(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Callable[[], None]) -> None:
        """Send a message now."""
        after(self._env, self._time_ns(src, dst, size_bytes), deliver)

    def send_in_turn(self, src: int, dst: int, size_bytes: int, key: Any, deliver: Callable[[], None]) -> None:
        """Send when the bytes of the last message between these two are gone that `key` gives the same phase."""
        pair, now_ns, time_ns = (key[:2], src, dst), int(self._env.now), self._time_ns(src, dst, size_bytes)
        start_ns = max(self._free_ns.get(pair, 0), now_ns)
        self._free_ns[pair] = start_ns + time_ns - self._time_ns(src, dst, 0)
        after(self._env, start_ns - now_ns + time_ns, deliver)

    def _time_ns(self, src: int, dst: int, size_bytes: int) -> int:
        ends = (src, dst, size_bytes)
        if ends not in self._known:
            self._known[ends] = self._delay(np.array([src]), np.array([dst]), size_bytes)[0].item()
        return self._known[ends]

    def table(self) -> None:
        """Links are not modelled."""
