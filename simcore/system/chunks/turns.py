"""Who is first of one nanosecond, worked out only where it matters: which chunk goes on first, which NPU acts first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import cache

from simcore.system.chunks.precedence import Npus, Precedence
from simcore.system.streams import Stream, Turns


class InTurn:
    """Keeps what `Precedence` is to be told until somebody asks for an order of NPUs.

    Which of the chunks that end together goes on first is nearly always seen from their last steps.
    """

    def __init__(self, precedence: Precedence):
        self._precedence, self._way = precedence, cache(precedence.way)
        self._noted = deque[tuple[Turns, Callable[[], Npus | None]]]()
        self._begun = set[Hashable]()

    def later(self, time_ns: float, order: Turns) -> None:
        """NPUs do something later, in an order, or in that of what they do then already."""
        self._note(lambda: self._precedence.later(time_ns, order.npus))

    def now(self, time_ns: float, order: Turns) -> Turns:
        """The order of NPUs in what they do at a time, that of `order` if nothing is known of it."""
        return self._note(lambda: self._precedence.now(time_ns, order.npus))

    def begin(self, stream: Stream, time_ns: float, order: Turns) -> None:
        """NPUs begin a chunk's phase, of which one of them tells."""
        name, phase = stream.name, stream.phase
        if name not in self._begun:
            self._begun.add(name)
            self._note(lambda: self._precedence.begin(name, phase, time_ns, order.npus))

    def leave(self, due: Sequence[Stream]) -> tuple[Stream, Turns]:
        """Which of the chunks whose phases end now leaves first, and in which order NPUs leave it.

        They stand in the order in which they began.
        """
        first = due[0]
        for other in due[1:]:
            earlier = self._earlier(first, other)
            if earlier is None:
                self._play()
                name, _ = self._precedence.after([each.name for each in due])
                first = next(each for each in due if each.name == name)
                break
            first = first if earlier else other
        name = first.name
        return first, self._note(lambda: self._precedence.after([name])[1])

    def _earlier(self, first: Stream, other: Stream) -> bool | None:
        """Whether of two phases the first one ends first, None where that depends on the order of NPUs.

        The one does whose last step was asked for earlier; of those asked for at one time, whose step before it was.
        """
        (own_ns, own), (its_ns, its) = self._way(first.phase), self._way(other.phase)
        while own.before and its.before:
            sooner_ns = (own_ns - own.asked_ns) - (its_ns - its.asked_ns)
            if sooner_ns:
                # What an NPU asks of itself may join what it does then already, asked for before by somebody else.
                alike = (own.message is None) == (its.message is None)
                return sooner_ns > 0 if alike or (own if sooner_ns > 0 else its).message is None else None
            if not own.alike(its):
                return None
            own, its = own.before, its.before
        return True if own.before is its.before else None

    def _note(self, call: Callable[[], Npus | None]) -> Turns:
        told = Turns(self._play)
        self._noted.append((told, call))
        return told

    def _play(self) -> None:
        while self._noted:
            told, call = self._noted.popleft()
            told.npus = call() or ()
