"""Who waits for whom when nothing can happen any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    chunks = sorted(_blocked(schedulers, ranks, names), key=lambda chunk: not chunk[0])
    text = ["error: deadlock: nothing can happen any more", *lines[:SHOWN], *(line for _, line in chunks[:SHOWN])]
    if chunks and not gang and not any(absent for absent, _ in chunks):
        text.append(ALONE)
    return DeadlockError("\n  ".join(text))


def _blocked(
    schedulers: Sequence[Scheduler], ranks: Sequence[Sequence[int]], names: Sequence[str]
) -> Iterator[tuple[bool, str]]:
    """The chunks that some NPU plays, or has ready, and another one does not.

    Whether one of the NPUs has not even asked for the collective, and a line about the chunk.
    """
    on_the_way, class_of_npu, seen = [scheduler.live for scheduler in schedulers], class_of(ranks), set()
    for live, own in zip(on_the_way, ranks, strict=True):
        for stream in live.values():
            members = stream.phase.lane.dim.members(own[0])
            key = (stream.key, stream.at, int(members[0]))
            if key not in seen:
                seen.add(key)
                states: dict[str, list[int]] = {}  # what the NPUs of the group do with the chunk
                for each in sorted(set(class_of_npu[members].tolist())):
                    states.setdefault(_state(stream, on_the_way[each], names), []).extend(ranks[each])
                if len(states) > 1 and states.keys() & {PLAYS, READY}:
                    who = "; ".join(f"NPU {format_ranks(sorted(npus))} {state}" for state, npus in states.items())
                    yield ABSENT in states, f"{_name(stream, names)}, dimension {stream.phase.lane.dim.index}: {who}"


def _state(stream: Stream, live: Mapping[tuple[int, int], Stream], names: Sequence[str]) -> str:
    """What an NPU with these chunks on their way does with a chunk."""
    here = live.get(stream.key)
    if here is None:
        return ABSENT
    if here.at != stream.at:
        return "is in another phase of it"
    mine, other = here.dataset.request, stream.dataset.request
    if (mine.kind, mine.size_bytes) != (other.kind, other.size_bytes):
        return f"has {mine.kind} '{names[mine.name]}' of {mine.size_bytes:,} bytes in its place"
    if here.phase.lane.dim != stream.phase.lane.dim:
        return "goes another way round, or in another dimension"
    if here.begun:
        return PLAYS
    queue = stream.phase.queue
    before = next((each for each in live.values() if each.begun and each.phase.queue == queue), None)
    return f"plays {_name(before, names)} first" if before else READY


def _name(stream: Stream, names: Sequence[str]) -> str:
    request = stream.dataset.request
    group = f" of group {request.group}" if request.group else ""
    return f"chunk {stream.key[1]}{group} ({request.kind} '{names[request.name]}')"
