"""Who waits for whom when nothing can happen any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simcore.errors import DeadlockError
from simcore.system.chunks.scheduler import Scheduler
from simcore.system.groups import class_of
from simcore.system.streams import Stream
from simcore.units import format_ranks

SHOWN = 10
ABSENT, PLAYS, READY = "has not asked for it", "plays it", "has it ready"
ALONE = (
    "hint: here every NPU starts what it has first, as in ASTRA-sim (issue 370: there the run ends without a word); "
    "--profile native begins a collective on all NPUs at once and cannot deadlock so"
)


def deadlock(
    lines: Sequence[str],
    schedulers: Sequence[Scheduler],
    ranks: Sequence[Sequence[int]],
    names: Sequence[str],
    *,
    gang: bool,
) -> DeadlockError:
    """The error, given a line for each NPU that is stuck.

    `ranks[c]` are the NPUs of `schedulers[c]`, `names` what requests are called. The hint is for machines whose NPUs
    begin collectives each for itself (not `gang`) when all have asked for those that are blocked.
    """
    chunks = sorted(_Blocked(schedulers, ranks, names), key=lambda chunk: not chunk[0])
    text = ["error: deadlock: nothing can happen any more", *lines[:SHOWN], *(line for _, line in chunks[:SHOWN])]
    if chunks and not gang and not any(absent for absent, _ in chunks):
        text.append(ALONE)
    return DeadlockError("\n  ".join(text))


class _Blocked:
    """The chunks that some NPU plays, or has ready, and another one does not.

    Yields whether one of the NPUs has not even asked for the collective, and a line about the chunk.
    """

    def __init__(self, schedulers: Sequence[Scheduler], ranks: Sequence[Sequence[int]], names: Sequence[str]):
        self._live, self._ranks, self._names = [scheduler.live for scheduler in schedulers], ranks, names
        self._class_of = class_of(ranks)
        self._plays: list[dict[int, Stream]] = [{} for _ in schedulers]  # what holds each queue of a class
        for plays, live in zip(self._plays, self._live, strict=True):
            for stream in live.values():
                if stream.begun:
                    plays.setdefault(stream.phase.queue, stream)

    def __iter__(self) -> Iterator[tuple[bool, str]]:
        seen = set()
        for npu_class, live in enumerate(self._live):
            for stream in live.values():
                members = stream.phase.lane.dim.members(self._ranks[npu_class][0])
                key = (stream.key, stream.at, int(members[0]))
                if key not in seen:
                    seen.add(key)
                    states: dict[str, list[int]] = {}  # what the NPUs of the group do with the chunk
                    for each in sorted(set(self._class_of[members].tolist())):
                        states.setdefault(self._state(stream, each), []).extend(self._ranks[each])
                    if len(states) > 1 and states.keys() & {PLAYS, READY}:
                        who = "; ".join(f"NPU {format_ranks(sorted(npus))} {state}" for state, npus in states.items())
                        yield ABSENT in states, f"{self._name(stream)}, dimension {stream.phase.lane.dim.index}: {who}"

    def _state(self, stream: Stream, npu_class: int) -> str:
        here = self._live[npu_class].get(stream.key)
        if here is None:
            return ABSENT
        if here.at != stream.at:
            return "is in another phase of it"
        mine, other = here.dataset.request, stream.dataset.request
        if (mine.kind, mine.size_bytes) != (other.kind, other.size_bytes):
            return f"has {mine.kind} '{self._names[mine.name]}' of {mine.size_bytes:,} bytes in its place"
        if here.phase.lane.dim != stream.phase.lane.dim:
            return "goes another way round, or in another dimension"
        if here.begun:
            return PLAYS
        before = self._plays[npu_class].get(stream.phase.queue)
        return f"plays {self._name(before)} first" if before else READY

    def _name(self, stream: Stream) -> str:
        request = stream.dataset.request
        group = f" of group {request.group}" if request.group else ""
        return f"chunk {stream.key[1]}{group} ({request.kind} '{self._names[request.name]}')"
