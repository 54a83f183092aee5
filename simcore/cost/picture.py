"""Pictures of predictions: predicted against measured, and time against memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.errors import InputError

if TYPE_CHECKING:
    from simcore.cost.search import Candidate, Found
    from simcore.cost.validate import Scored

__all__ = ["draw_front", "plot_front", "plot_predictions"]

_SUFFIXES = (".png", ".svg", ".pdf")


_COLOURS, _MARKS = 10, "o^s"  # matplotlib's own colours, then the same with other marks


def plot_predictions(scored: Sequence[Scored], path: Path) -> None:
    """Every row of every suite, predicted over measured seconds, both logarithmic; the diagonal is exact."""
    figure, axes = _figure(path)
    scored = [one for one in scored if one.suite.unit == "s"] or scored
    for number, one in enumerate(scored):
        measured = [row.measured for row in one.rows]
        predicted = [prediction.step_s for prediction in one.predictions]
        mark = _MARKS[number // _COLOURS % len(_MARKS)]
        axes.scatter(measured, predicted, s=9, alpha=0.6, marker=mark, label=f"{one.suite.name} ({one.mean:.1%})")
    axes.set(xscale="log", yscale="log", xlabel="measured (s)", ylabel="predicted (s)")
    ends = [end([row.measured for one in scored for row in one.rows]) for end in (min, max)]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    figure.set_figwidth(9)
    figure.legend(title="suite (mean |error|)", fontsize=8, loc="outside right upper")
    _save(figure, path)


def plot_front(found: Found, path: Path) -> None:
    """The best and the front of a search: step time against memory."""
    figure, axes = _figure(path)
    draw_front(axes, found)
    _save(figure, path)


def draw_front(axes: Any, found: Found) -> None:
    """What `plot_front` shows, on a matplotlib `Axes`."""
    for some, style, label in ((found.best, "o", "fastest"), (found.front, "s-", "fastest at each memory")):
        memory = [one.memory_bytes / 1e9 for one in some]
        drawn = {"drawstyle": "steps-post"} if style == "s-" else {}
        axes.plot(memory, [one.step_s for one in some], style, label=label, markersize=5, alpha=0.8, **drawn)
    axes.set_yscale("log")
    for shown in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        shown("{x:g}")
    axes.margins(x=0.15)
    middle_bytes = max((one.memory_bytes for one in found.front), default=0) / 2
    for one in _apart(found.front):
        degrees = ((name, getattr(one.job, name)) for name in ("tp", "pp", "cp", "ep", "dp"))
        text = " ".join(f"{name}{value}" for name, value in degrees if value > 1) + f" {one.job.schedule_name}"
        # The front falls to the right: free is what lies above and right of it, or near the frame below and left.
        where = _BELOW if one.memory_bytes > middle_bytes else _ABOVE
        axes.annotate(text, (one.memory_bytes / 1e9, one.step_s), textcoords="offset points", fontsize=7, **where)
    axes.set(xlabel="memory per accelerator (GB)", ylabel="step (s)")
    axes.legend(fontsize=8)


_ABOVE: dict[str, Any] = {"xytext": (5, 4)}
_BELOW: dict[str, Any] = {"xytext": (-5, -5), "ha": "right", "va": "top"}


def _apart(front: Sequence[Candidate]) -> Iterator[Candidate]:
    """The points that can be labelled: those a thirtieth of the (logarithmic) height above the last labelled one."""
    if not front:
        return
    least = (front[-1].step_s / front[0].step_s) ** (1 / 30)
    last_s = 0.0
    for one in front:
        if one.step_s >= last_s * least:
            last_s = one.step_s
            yield one


def _figure(path: Path) -> tuple[Any, Any]:
    if path.suffix not in _SUFFIXES:
        expected = f"a name that ends in {', '.join(_SUFFIXES)}"
        raise InputError.at("--plot", "no picture of this kind", expected=expected, found=str(path))
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Any, path: Path) -> None:
    """Write through a temporary name, so that a reader never sees half a picture."""
    draft = path.with_name(f".{path.name}.part{path.suffix}")
    try:
        figure.savefig(draft, dpi=150, metadata={"Software": None} if path.suffix == ".png" else None)
        draft.replace(path)
    except OSError as error:
        raise InputError.at(str(path), f"cannot write: {error.strerror or error}") from error
