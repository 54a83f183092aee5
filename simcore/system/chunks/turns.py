"""Who is first of one nanosecond, worked out only where it matters: which chunk goes on first, which NPU acts first."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import cache

from simcore.network.instant import Environment, after
from simcore.network.topology.fabric import IntArray
from simcore.system.chunks.cut import in_trees
from simcore.system.chunks.precedence import Precedence
from simcore.system.streams import BY_ID, Chunks, Stream, StreamPhase, Turns
from simcore.system.transport import MeetingError


class InTurn:
    """Keeps what `Precedence` is to be told until somebody asks for an order of NPUs.

    Which of the chunks that end together goes on first is nearly always seen from their last steps, or the answer is
    the same `either_way`. What has come to `crowded` queues before a chunk leaves counts. Where only `Apart` tells what
    follows, it stops the run with `MeetingError`.
    """

    def __init__(
        self,
        precedence: Precedence,
        either_way: Callable[[Stream, Stream], bool],
        crowded: Callable[[Stream], frozenset[int]],
    ):
        self._precedence, self._way, self._either_way = precedence, cache(precedence.way), either_way
        self._meets = cache(precedence.meets)
        # Many notes hold the same methods, so each of these is one object.
        self._later, self._now, self._begin = precedence.later, precedence.now, precedence.begin
        self._over, self._told = self._left, self._play
        self._noted = deque[tuple[Turns, Callable[..., IntArray | None], Turns, tuple[object, ...]]]()
        self._asked_ns: dict[float, float] = {}  # when NPUs asked for what they do at a time
        self._left_ns, self._queues, self._crowded = -1.0, frozenset[int](), crowded

    def now(self, time_ns: float, order: Turns) -> Turns:
        """The order of NPUs in what they do at a time, that of `order` if nothing is known of it."""
        self._asked_ns.pop(time_ns, None)
        return self._note(self._now, order, time_ns)

    def ahead(self, env: Environment, delay_ns: int, order: Turns) -> None:
        """NPUs ask for what they do later, before chunks begin: in an order, or in that of what they do then."""
        self._asked_ns.setdefault(env.now + delay_ns, env.now)
        self._note(self._later, order, env.now + delay_ns)

    def after(self, env: Environment, delay_ns: int, order: Turns, then: Callable[[Turns], object]) -> None:
        """NPUs do something later; what follows is told in which order."""
        time_ns = env.now + delay_ns
        self.ahead(env, delay_ns, order)
        after(env, delay_ns, lambda: then(self.now(time_ns, order)))

    def begin(self, name: Hashable, phase: StreamPhase, time_ns: float, order: Turns) -> None:
        """NPUs begin a phase, of which one of them tells."""
        if self._meets(phase):
            raise MeetingError
        self._note(self._begin, order, name, phase, time_ns)

    def waits(self, stream: Stream, now_ns: float) -> bool:
        """Whether NPUs have something to do before they leave a phase, asked for before its last step was."""
        asked_ns = self._asked_ns.get(now_ns)
        if asked_ns is None or stream.end_ns != now_ns:  # where messages are played, all happens in its order
            return False
        took_ns, last = self._way(stream.phase)
        return asked_ns < now_ns - took_ns + last.asked_ns

    def issue(self, chunks: Chunks, now_ns: float) -> None:
        """NPUs issue chunks: those that do so before others leave a phase in that nanosecond may not go on alike."""
        if self._left_ns == now_ns and not self._queues.isdisjoint(phases[0].queue for phases in chunks):
            raise MeetingError

    def leave(self, name: Hashable, stream: Stream, now_ns: float) -> Turns:
        """The order in which NPUs leave a phase that is over."""
        self._queues = self._crowded(stream).union(self._queues if self._left_ns == now_ns else ())
        self._left_ns = now_ns
        return self._note(self._over, BY_ID, name)

    def first(self, due: Mapping[Stream, Hashable]) -> Stream:
        """Which of the chunks whose phases end now leaves first; they stand in the order in which they began.

        Of two, that may make no difference.
        """
        first, *others = due
        trees = any(in_trees(each.phase.lane) for each in due)  # NPUs leave each in an order of its own
        if len(due) == 2 and not trees and self._either_way(first, *others):
            return first
        for other in others:
            earlier = self._earlier(first, other)
            if earlier is None:
                self._play()
                name, _ = self._precedence.after([*due.values()])
                return next(each for each in due if due[each] == name)
            first = first if earlier else other
        return first

    def _note(self, call: Callable[..., IntArray | None], order: Turns, *args: object) -> Turns:
        told = Turns(self._told)
        self._noted.append((told, call, order, args))
        return told

    def _play(self) -> None:
        while self._noted:
            told, call, order, args = self._noted.popleft()
            told.npus = call(*args, order.npus)

    def _left(self, name: Hashable, _: IntArray | None) -> IntArray:
        return self._precedence.after([name])[1].copy()  # what begins in one order begins with one leaving

    def _earlier(self, first: Stream, other: Stream) -> bool | None:
        """Whether of two phases the first one ends first, None where that depends on the order of NPUs.

        The one does whose last step was asked for earlier; of those asked for at one time, whose step before it was.
        """
        if first.phase is other.phase:
            return True
        (own_ns, own), (its_ns, its) = self._way(first.phase), self._way(other.phase)
        while own.before and its.before:
            sooner_ns = (own_ns - own.asked_ns) - (its_ns - its.asked_ns)
            if sooner_ns:
                early, late = (own, its) if sooner_ns > 0 else (its, own)
                # What an NPU asks of itself joins what it does then already: that may come before an earlier message.
                return (sooner_ns > 0) if early.receivers is None or late.receivers is not None else None
            if own.receivers is not its.receivers:
                return None
            own, its = own.before, its.before
        return True if own.before is its.before else None
