"""simcore predict: one training step of a model under a plan on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simcore.api import predict
from simcore.cli.command import emit, warn
from simcore.cli.kinds import forced
from simcore.cost.answer import Answer, remedies
from simcore.cost.picture import occupancies, step_figure, told, write_memory
from simcore.cost.played import program, write_step
from simcore.files import write_text
from simcore.model.effects import idle
from simcore.model.memory import room
from simcore.options import spelled
from simcore.report.plots import save
from simcore.report.table import Table, columns
from simcore.units import format_bytes, format_ns
from simcore.workload.text import write

LEAST_SHARE = 0.005  # of the time that is told


def command(
    model: str, cluster: str, accelerators: int, seq: int, *, conditions: str, software: str, runs: bool,
    output: str | None, memory: str | None, oom: bool, plot: str | None, **words: Any,
) -> None:  # fmt: skip
    """Predict one training step: how long it takes, what it consists of, what memory it needs."""
    given = _given(words)
    answer = predict(model, cluster, accelerators, seq, conditions=conditions, software=software, **given)
    for name, needed in idle(answer.model, answer.plan, given):
        warn(f"{spelled(name)} has no effect here, it needs {needed}")
    document = answer.to_dict()
    if runs:
        document["run_s"] = answer.run_s()
        if (network_s := answer.network_s()) is not None:
            document["network_run_s"] = network_s
    if output:
        _write(answer, Path(output))
    if memory:
        some = occupancies(answer)
        write_memory(answer, some, Path(memory))
        document["memory_over_time"] = [told(one) for one in some]
    if plot:
        save(step_figure(answer), Path(plot))
    if oom:
        document["would_fit"] = _would_fit(answer)
    emit(document, lambda: "\n".join(_lines(answer, document)))


def _given(words: dict[str, Any]) -> dict[str, Any]:
    """The words that were said, as fields of a plan."""
    return {name: value for name, value in words.items() if value is not None and value != ()}


def _write(answer: Answer, output: Path) -> None:
    """The step as the engine runs it."""
    if output.suffix == ".et":
        write_step(answer.model, answer.plan, answer.cluster, output.with_suffix(""), force=forced())
    else:
        write_text(output, write(program(answer.model, answer.plan, answer.cluster)))


def _would_fit(answer: Answer) -> list[dict[str, Any]]:
    """Changes with which the plan fits; none where it does."""
    if max(memory.total for memory in answer.memory) <= answer.cluster.memory_bytes:
        return []
    found = remedies(answer.model, answer.plan, answer.cluster)
    return [{"option": option, "peak_bytes": size, "step_s": step_s} for option, size, step_s in found]


def _lines(answer: Answer, document: dict[str, Any]) -> Iterator[str]:
    plan, capacity = answer.plan, answer.cluster.memory_bytes
    low, high = (format_ns(1e9 * end) for end in answer.interval_s)
    speed = f"{answer.tokens_per_s:,.0f} tokens/s on each, {answer.mfu:.1%} of the peak of {plan.dtype} (MFU)"
    job = f"{answer.model.name} on {plan.world_size} x {answer.cluster.accelerator}"
    yield f"A step of {job} ({plan.degrees}) takes {format_ns(1e9 * answer.step_s)}: {speed}."
    wide = " (wide, for hardly anything like it was measured)" * answer.margin.widened
    most = max(memory.total for memory in answer.memory)
    yield f"Nine in ten measured steps: {low} to {high}{wide}. The fullest stage {room(most, capacity) or 'fits'}."
    yield "--oom says what would make it fit.\n" if most > capacity and "would_fit" not in document else ""
    if "run_s" in document:
        yield f"the engine runs it in {document['run_s']:.9g} s"
    if "network_run_s" in document and answer.cluster.topology:
        yield f"on the links of {answer.cluster.topology.name} it takes {document['network_run_s']:.9g} s"
    taken = [(name, seconds) for name, seconds in document["parts"].items() if seconds]
    rows = [(name.removesuffix("_s").replace("_", " "), took * 1e9, took / answer.step_s) for name, took in taken]
    yield Table("", columns("part", "time_ns", ("share", "of the step")), rows).text(indent=2)
    yield from _basis(document)
    parts = [memory._asdict() for memory in answer.memory]
    names = [name for name in parts[0] if any(each[name] for each in parts)]
    kept = [
        (stage, memory.total, *(each[name] for name in names), room(memory.total, capacity).partition(",")[0])
        for stage, (memory, each) in enumerate(zip(answer.memory, parts, strict=True))
    ]
    sizes = [(name, name, "bytes") for name in ("memory", *names)]
    yield ""
    title = f"Memory of each stage, of {format_bytes(capacity)}"
    yield Table(title, columns("stage", *sizes, ("room", "")), kept).text(120)
    yield from document.get("memory_over_time", [])
    if "would_fit" in document:
        helped = "would fit, the fastest first:" if document["would_fit"] else "no one change helps"
        yield helped if most > capacity else "it fits"
        fits = [(one["option"], one["peak_bytes"], one["step_s"] * 1e9) for one in document["would_fit"]]
        yield Table("", columns("option", "peak_bytes", "step_ns"), fits).text(indent=2)


def _basis(document: dict[str, Any]) -> Iterator[str]:
    """What the times rest on, the kernels that decide, and the power."""
    sources = document["sources"]
    shares = ", ".join(
        f"{sources[f'{name}_share']:.0%} {name}"
        for name in ("measured", "interpolated", "transferred", "roofline")
        if sources[f"{name}_share"] >= LEAST_SHARE
    )
    away = f"mean distance to a measurement {sources['mean_distance'] or 0:.1f} octaves (factors of two)"
    yield f"\nTimes rest on {shares}; {away}. These kernels decide:\n"
    known = ("over_short_run", "of a short run", ".0%"), ("spread", "off by", ".0%")
    shown = ("share", "of all"), "kernel", "time_ns", *known, "source", "table", ("distance", "octaves", ".1f")
    rows = [{**one, "time_ns": one["seconds"] * 1e9} for one in sources["deciding"]]
    yield Table("", columns(*shown), rows).text(160, indent=2)
    if document["power"]:
        power = document["power"]
        yield (
            f"\nPower: {power['board_w']:,.0f} W and {power['board_j']:,.0f} J a step on each board,"
            f" {power['tokens_per_j']:.3g} tokens/J"
        )
