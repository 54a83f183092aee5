"""What a timeline shows: some ranks, some iterations, a window of time; and what that leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simcore.errors import InputError, wrong
from simcore.report.table import shorten
from simcore.timeline.breakdown import class_figures
from simcore.timeline.events import EventTable, Timeline
from simcore.units import format_ns, format_ranks, parse_ns, parse_spans

LABEL_WIDTH = 60
MOST_RANKS = 10_000_000


@dataclass(frozen=True, slots=True)
class Selection:
    """What the user asked to see; None leaves it to the view's limits.

    `ranks` are NPUs, ascending; `window_ns` begin and end in simulated time; `iteration` counts from 0.
    """

    ranks: tuple[int, ...] | None = None
    window_ns: tuple[int, int] | None = None
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a viewer can hold."""

    num_classes: int
    num_events: int


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The part of a timeline that is shown.

    `classes` are indices into the timeline's, `labels` name their ranks, `left_out` says in words what is missing.
    """

    events: EventTable
    start_ns: int
    end_ns: int
    classes: tuple[int, ...]
    labels: tuple[str, ...]
    left_out: tuple[str, ...]


def parse_selection(ranks: str | None = None, window: str | None = None, iteration: int | None = None) -> Selection:
    """A selection from what `--ranks`, `--window` and `--iteration` say; InputError when they cannot be read.

    >>> parse_selection("0-1", "0:5us")
    Selection(ranks=(0, 1), window_ns=(0, 5000), iteration=None)
    """
    return Selection(
        ranks=None if ranks is None else parse_ranks(ranks),
        window_ns=None if window is None else parse_window(window),
        iteration=iteration,
    )


def parse_ranks(text: str) -> tuple[int, ...]:
    """Ranks as the report prints them.

    >>> parse_ranks("0-3,7")
    (0, 1, 2, 3, 7)
    """
    try:
        spans = parse_spans(text)
    except ValueError:
        spans = []
    if not spans or any(span.stop - span.start > MOST_RANKS for span in spans):
        raise wrong("--ranks", "a list of ranks, for example 0-3,7", text)
    return tuple(sorted({rank for span in spans for rank in span}))


def parse_window(text: str) -> tuple[int, int]:
    """A window of simulated time, two times with a colon between them; bare numbers are nanoseconds.

    >>> parse_window("1.5us:2 us")
    (1500, 2000)
    """
    begin, colon, end = text.partition(":")
    try:
        window = (int(parse_ns(begin)), int(parse_ns(end)))
    except ValueError:
        window = (0, 0)
    if not colon or window[1] <= window[0]:
        raise wrong("--window", "begin:end with begin < end, for example 1ms:2.5ms (bare numbers are ns)", text)
    return window


def choose(timeline: Timeline, selection: Selection, limits: Limits) -> View:
    """The part of a timeline that a selection and a viewer's limits leave; InputError where the run has no such part.

    Where nothing is asked: every class and iteration if they fit; else representative classes (NPU 0, slowest,
    fastest, median), then the last iteration, then the beginning of it.
    """
    _check(timeline, selection)
    classes = _classes(timeline, selection, limits)
    mask = np.isin(timeline.events.npu_class, classes)
    iteration, last = selection.iteration, len(timeline.iterations) - 1
    if iteration is None and not selection.window_ns and last > 0 and int(mask.sum()) > limits.num_events:
        iteration = last
    if iteration is not None:
        mask &= timeline.events.iteration == iteration
    if selection.window_ns:
        begin_ns, end_ns = selection.window_ns
        mask &= (timeline.events.start_ns < end_ns) & (timeline.events.end_ns > begin_ns)
    rows = np.flatnonzero(mask)
    kept = timeline.events.where(rows[: limits.num_events])
    if selection.ranks is not None:
        kept = replace(kept, messages=_between(timeline, kept, set(selection.ranks)))
    start_ns, end_ns = selection.window_ns or (0, timeline.time_ns)
    if iteration is not None and not selection.window_ns:
        start_ns, end_ns = timeline.iterations[iteration]
        end_ns = max(end_ns, int(kept.end_ns.max(initial=0)))
    if len(kept) < len(rows):
        end_ns = int(kept.start_ns[-1]) + 1
    end_ns = max(end_ns, start_ns + 1)
    labels = tuple(rank_label(timeline.ranks[c], selection.ranks) for c in classes)
    view = View(kept, int(start_ns), int(end_ns), tuple(classes), labels, ())
    return replace(view, left_out=tuple(_left_out(timeline, selection, iteration, view, len(rows))))


def _between(timeline: Timeline, events: EventTable, wanted: set[int]) -> NDArray[np.int64]:
    """Messages from one of some ranks to another: a class sends to one as large, each member to that of its place."""
    places = [{place for place, rank in enumerate(ranks) if rank in wanted} for ranks in timeline.ranks]
    ends = events.npu_class[events.messages].tolist()
    shown = [not places[src].isdisjoint(places[dst]) for src, dst in ends]
    found: NDArray[np.int64] = events.messages[np.array(shown, bool)]
    return found


def _check(timeline: Timeline, selection: Selection) -> None:
    """InputError when the selection names what the run does not have."""
    num_iterations, ranks = len(timeline.iterations), selection.ranks
    if selection.iteration is not None and not 0 <= selection.iteration < num_iterations:
        expected, found = f"0 to {num_iterations - 1}", str(selection.iteration)
        raise InputError.at("--iteration", "no such iteration", expected=expected, found=found)
    if ranks and ranks[-1] >= timeline.npus:
        expected = f"ranks below {timeline.npus}"
        raise InputError.at("--ranks", "no such rank", expected=expected, found=str(ranks[-1]))
    if selection.window_ns and selection.window_ns[0] > timeline.time_ns:
        expected, found = f"a window that begins before {timeline.time_ns} ns", f"{selection.window_ns[0]} ns"
        raise InputError.at("--window", "the window is after the end of the run", expected=expected, found=found)


def rank_label(members: Sequence[int], wanted: Sequence[int] | None = None) -> str:
    """The ranks a class is shown for: all its members, or those of them that are wanted."""
    ranks = members if wanted is None else sorted(set(members) & set(wanted))
    return ("rank " if len(ranks) == 1 else "ranks ") + shorten(format_ranks(ranks), LABEL_WIDTH)


def _classes(timeline: Timeline, selection: Selection, limits: Limits) -> list[int]:
    """Classes to show, ascending."""
    if selection.ranks is not None:
        wanted = set(selection.ranks)
        return [c for c, members in enumerate(timeline.ranks) if not wanted.isdisjoint(members)]
    everyone = range(len(timeline.ranks))
    if len(everyone) <= limits.num_classes:
        return list(everyone)
    compute_ns = class_figures(timeline).compute_ns.tolist()  # tells stragglers where all finish together
    by_finish = sorted(everyone, key=lambda c: (timeline.finish_ns[c], compute_ns[c]))
    return sorted({0, by_finish[-1], by_finish[0], by_finish[len(by_finish) // 2]})


def _left_out(
    timeline: Timeline, selection: Selection, iteration: int | None, view: View, num_rows: int
) -> Iterator[str]:
    """What a view of so many rows does not show, in words."""
    shown = sum(len(timeline.ranks[c]) for c in view.classes) if selection.ranks is None else len(selection.ranks)
    if shown < timeline.npus:
        yield f"{timeline.npus - shown:,} of {timeline.npus:,} ranks (--ranks chooses)"
    if iteration is not None and len(timeline.iterations) > 1:
        yield f"{len(timeline.iterations) - 1} of {len(timeline.iterations)} iterations (--iteration chooses)"
    if selection.window_ns:
        yield f"what lies outside {format_ns(selection.window_ns[0])} to {format_ns(selection.window_ns[1])}"
    if len(view.events) < num_rows:
        yield f"{num_rows - len(view.events):,} events after {format_ns(view.end_ns)} (--window chooses)"
