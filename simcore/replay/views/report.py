"""The report of a replay: the JSON document and the text."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from statistics import mean, stdev

import numpy as np

import simcore
from simcore.replay.session import Replay, StepReplay
from simcore.replay.views.breakdown import (
    TaskTotal,
    busy,
    critical_path,
    critical_tasks,
    host_share,
    idle_causes,
    largest_tasks,
    measured,
    predicted,
)
from simcore.replay.whatif.communication import changes
from simcore.replay.whatif.layers import layers_if_clear
from simcore.replay.whatif.retiming import Retimed
from simcore.timeline.breakdown import Breakdown
from simcore.units import format_ns
from simcore.workload.kineto import HostUse

__all__ = ["SCHEMA", "Utilisation", "answer", "to_dict", "to_text", "typical_step", "utilisation"]

SCHEMA = "simcore.replay/1"
TASKS_SHOWN, TASKS_ON_PATH = 5, 3
NAME_WIDTH = 60
TESTED = 0.01  # by so much the null model must be worse for a trace to test anything
BIN_NS, LEAST_BINS = 1_000_000, 40


Ablations = dict[str, list[float]]


def to_dict(replay: Replay, ablations: Ablations | None = None) -> dict[str, object]:
    """The JSON document: plain data, ready to be written with sorted keys."""
    ranks = [_rank(replay, number) for number in range(len(replay.ranks))]
    for number, rank in enumerate(ranks if ablations else ()):
        rank["ablations"] = {name: errors[number] for name, errors in (ablations or {}).items()}
    return {"schema": SCHEMA, "version": simcore.__version__, "ranks": ranks, "stragglers": stragglers(replay)}


def typical_step(replay: Replay, rank: int) -> StepReplay:
    """The scored step whose measured time is the median."""
    ordered = sorted(replay.scored(rank), key=lambda step: (step.measured_ns, step.window.index))
    return ordered[(len(ordered) - 1) // 2]


@dataclass(frozen=True, slots=True)
class Utilisation:
    """The share of each bin of a typical step in which at least one stream ran something."""

    bin_ns: int
    measured: list[float]
    predicted: list[float]


def utilisation(replay: Replay, number: int) -> Utilisation:
    """In bins of a millisecond as in Lumos; of 1, 2 or 5 times a power of ten where these would be few."""
    step = typical_step(replay, number)
    longest_ns = max(step.measured_span_ns[1] - step.measured_span_ns[0], step.to_ns - step.from_ns)
    fine = [size for power in (1_000, 10_000, 100_000) for size in (power, 2 * power, 5 * power)]
    bin_ns = max((size for size in (*fine, BIN_NS) if size * LEAST_BINS <= longest_ns), default=fine[0])
    return Utilisation(bin_ns, *busy(step, bin_ns))


def _rank(replay: Replay, number: int) -> dict[str, object]:
    prepared, scored, typical = replay.ranks[number], replay.scored(number), typical_step(replay, number)
    return {
        "rank": prepared.view.trace.rank,
        "file": prepared.view.trace.file,
        "device": prepared.view.trace.device,
        "host_trace": asdict(prepared.view.trace.host) if prepared.view.trace.host else None,
        "steps": [_step(step) for step in replay.steps[number]],
        **_tested(replay, number),
        "step_noise": _noise([step.window.length_ns for step in scored]),
        "breakdown": {
            "measured": asdict(_mean([measured(step) for step in scored])),
            "predicted": asdict(_mean([predicted(step) for step in scored])),
        },
        "kernel_start_error_ns": _start_errors(replay, number),
        "coverage": _coverage(replay, number),
        "edges": typical.graph.edge_counts(typical.number),
        "utilisation": asdict(utilisation(replay, number)),
        "critical_tasks": [asdict(task) for task in critical_tasks(typical)],
        "critical_path_ns": critical_path(typical),
        "idle_causes_ns": idle_causes(typical),
        "largest_tasks": [asdict(task) for task in largest_tasks(typical)],
        "layers": stack.to_dict() if (stack := layers_if_clear(prepared.view, typical.position)) else None,
        "launch_queue_depth": prepared.queue.depth,
        **({"retimed": _retimed(replay, number)} if replay.whats else {}),
        "warnings": warnings(replay, number),
    }


def _retimed(replay: Replay, number: int) -> dict[str, dict[str, int]]:
    """What the changes did to the communication of the typical step."""
    found = changes(typical_step(replay, number))
    return {kind: asdict(change) for kind, change in sorted(found.items())}


def _step(step: StepReplay) -> dict[str, object]:
    return {
        "index": step.window.index,
        "measured_ns": step.window.length_ns,
        "predicted_ns": step.predicted_ns,
        "baseline_ns": step.baseline_ns,
        "error": step.error,
        **({} if step.steady else {"device_ns": step.device_ns, "predicted_device_ns": step.period.device_ns}),
        "steady": step.steady,
    }


def _tested(replay: Replay, number: int) -> dict[str, object]:
    """How far the replay is off, and whether the trace says anything of the model: a null model must do worse."""
    scored = replay.scored(number)
    period, alone, null = (
        mean(abs(step.error_of(getattr(step, side))) for step in scored) for side in ("baseline", "unaided", "null")
    )
    return {
        "period_error": period,
        "unaided_error": alone,
        "null_error": null,
        "tested": len(replay.steps[number]) > 1 and null - alone > TESTED,
        "host_share": host_share(critical_path(typical_step(replay, number))),
    }


def _noise(lengths: list[int]) -> float:
    return stdev(lengths) / mean(lengths) if len(lengths) > 1 and mean(lengths) else 0.0


def _mean(parts: list[Breakdown]) -> Breakdown:
    """The mean of several breakdowns; idle takes the rounding so that the four still add up."""
    total = sum(part.compute_ns + part.overlapped_ns + part.exposed_comm_ns + part.idle_ns for part in parts)
    compute, overlapped, exposed = (
        sum(getattr(part, name) for part in parts) // len(parts)
        for name in ("compute_ns", "overlapped_ns", "exposed_comm_ns")
    )
    return Breakdown(compute, overlapped, exposed, total // len(parts) - compute - overlapped - exposed)


def _start_errors(replay: Replay, number: int) -> dict[str, int]:
    """How far starts of tasks, counted from the step's mark or the device's start of it, are from the recorded ones."""
    errors = []
    tasks = replay.ranks[number].view.trace.tasks
    for step in replay.scored(number):
        nodes = step.graph.ranks[step.number]
        start = step.schedule.start_ns[-1]
        origin_ns = start[nodes.begin] if step.steady else step.from_ns
        found = start[nodes.begins] - origin_ns
        errors.append(np.abs(found - (tasks.start_ns[nodes.tasks] - step.measured_span_ns[0])))
    column = np.concatenate(errors)
    p50, p90 = np.percentile(column, (50, 90)) if len(column) else (0, 0)
    return {"p50": round(p50), "p90": round(p90)}


def _coverage(replay: Replay, number: int) -> float:
    """The share of the delay beyond launch and stream order that a dependency explains; 1 when there is none."""
    prepared = replay.ranks[number]
    rows = [task for step in replay.scored(number) for task in step.tasks]
    late = int(prepared.delays.late_ns[rows].sum())
    return 1 - int(prepared.delays.unexplained_ns[rows].sum()) / late if late else 1.0


def stragglers(replay: Replay) -> dict[str, int]:
    """How many coupled collectives each rank reached last: its kernel, which did not wait, is the shortest."""
    counts = Counter[int]()
    steps = [step for steps in replay.steps for step in steps if step.number == 0]
    for step in steps:
        traces = [rank.view.trace for rank in step.source.ranks]
        for match in step.source.matches:
            _, rank = min((traces[m.rank].tasks.length_ns(m.task), traces[m.rank].rank) for m in match.members)
            counts[rank] += 1
    return {str(rank): count for rank, count in sorted(counts.items())}


def warnings(replay: Replay, number: int) -> list[str]:
    """What makes the comparison weaker than it looks."""
    prepared, steps, found = replay.ranks[number], replay.steps[number], []
    trace = prepared.view.trace
    if not trace.steps:
        found.append("no ProfilerStep marks: the whole trace is taken as one step")
    silent = mean(int(prepared.delays.unrecorded_ns[step.tasks].sum()) for step in replay.scored(number))
    if silent:
        found.append(f"incomplete trace: {format_ns(silent)} a step inside graphs has no recorded kernel; kept as work")
    unlaunched = int(((prepared.view.launch < 0) & (prepared.view.task_step >= 0)).sum())
    if unlaunched:
        found.append(f"incomplete trace: {unlaunched} tasks have no recorded launch; their delays stay unexplained")
    later = steps[1:] or steps
    if len(steps) > 1 and not any(step.steady for step in later):
        needed = format_ns(mean(step.device_ns for step in later))
        found.append(f"no step is steady: the marks are the host's, the device took {needed} a step")
    contradictions = sum(step.graph.left_out for step in steps)
    if contradictions:
        found.append(f"{contradictions} dependencies contradict the recorded times and are left out")
    found += sorted({step.stream_order.value for step in steps} - {""})
    for what in (what for what in replay.whats if isinstance(what, Retimed)):
        found += what.notes(prepared.view, typical_step(replay, number).tasks, alone=len(replay.ranks) == 1)
    if len(replay.ranks) > 1 and replay.changes.coupling and _uncoupled(replay, number):
        found.append("some collectives have no counterpart on another rank and wait for nobody")
    if any(not step.tasks for step in steps):
        found.append("a step launched nothing on the GPU")
    return found


def _uncoupled(replay: Replay, number: int) -> bool:
    """Whether a communication kernel of a rank belongs to no match."""
    return any(
        prepared_rows > sum(member.rank == step.number for match in step.source.matches for member in match.members)
        for step in replay.steps[number]
        for prepared_rows in (int(replay.ranks[number].view.communicating(step.position).sum()),)
    )


def to_text(replay: Replay, ablations: Ablations | None = None) -> str:
    """The answer in a sentence, then what it rests on."""
    parts = [_rank_text(replay, number) for number in range(len(replay.ranks))]
    if ablations:
        parts.append(_ablation_table(replay, ablations))
    if len(replay.ranks) > 1:
        counts = stragglers(replay)
        reached = ", ".join(f"rank {rank} in {count}" for rank, count in counts.items())
        parts.append(f"Who reached the {sum(counts.values())} matched collectives last: {reached or 'nobody'}.")
    return "\n\n".join(parts)


def _ablation_table(replay: Replay, ablations: Ablations) -> str:
    """The period's error with residuals, without, and then without one more kind of dependency."""
    rows = [f"Mean error of the period{'':8}" + "".join(f"{name.replace('_', ' '):>16}" for name in ablations)]
    for number, prepared in enumerate(replay.ranks):
        errors = "".join(f"{each[number]:>16.2%}" for each in ablations.values())
        rows.append(f"  rank {prepared.view.trace.rank:<25}{errors}")
    return "\n".join(rows)


def _rank_text(replay: Replay, number: int) -> str:
    prepared, scored = replay.ranks[number], replay.scored(number)
    lines = [answer(replay, number), "", "  step      measured     predicted    error"]
    for step in replay.steps[number]:
        shown = format_ns(step.window.length_ns), format_ns(step.predicted_ns)
        note = "" if step.steady else f"   not steady: the device took {format_ns(step.device_ns)}"
        lines.append(f"  {step.window.index:<6}{shown[0]:>12}  {shown[1]:>12}  {step.error:>+7.1%}{note}")
    sides = [asdict(_mean([side(step) for step in scored])) for side in (measured, predicted)]
    lines += ["", "  breakdown           measured              predicted"]
    for key in sides[0]:
        cells = [f"{format_ns(side[key]):>12} {side[key] / max(sum(side.values()), 1):>6.1%}" for side in sides]
        lines.append(f"  {key.removesuffix('_ns'):<14}{cells[0]}   {cells[1]}")
    lines += ["", *_explanations(replay, number)]
    return "\n".join(lines + [f"  warning: {text}" for text in warnings(replay, number)])


def _explanations(replay: Replay, number: int) -> list[str]:
    """What the prediction rests on, for the typical step."""
    prepared, typical = replay.ranks[number], typical_step(replay, number)
    errors, coverage = _start_errors(replay, number), _coverage(replay, number)
    starts = f"{format_ns(errors['p50'])} (median), {format_ns(errors['p90'])} (p90)"
    counts = typical.graph.edge_counts(typical.number)
    stack = layers_if_clear(prepared.view, typical.position)
    return [
        f"  task starts off by {starts}; dependencies explain {coverage:.0%} of late starts",
        "  edges: " + ", ".join(f"{kind} {count}" for kind, count in counts.items() if count),
        "  critical path: " + _shares(critical_path(typical)),
        *_task_lines(critical_tasks(typical, TASKS_ON_PATH)),
        "  device idle, by cause: " + (_shares(idle_causes(typical)) or "never"),
        *([f"  layers: {stack}"] if stack else []),
        *_host_text(prepared.view.trace.host),
        "  largest tasks:",
        *_task_lines(largest_tasks(typical, TASKS_SHOWN)),
    ]


def _task_lines(tasks: list[TaskTotal]) -> list[str]:
    return [f"    {format_ns(task.time_ns):>10} {task.count:>5} x {task.name[:NAME_WIDTH]}" for task in tasks]


def _host_text(host: HostUse | None) -> list[str]:
    """What a host execution trace added."""
    if host is None:
        return []
    repeated = f", an iteration that repeats {host.stretches} times" if host.stretches > 1 else ""
    unsized = f" ({host.unsized} communication kernels without)" if host.unsized else ""
    found = f"{host.found} of {host.operations} operations found by {host.matched_by}{repeated}"
    return [
        f"  host trace: {found}; shapes of {host.products} products, sizes of {host.collectives} collectives{unsized}"
    ]


def answer(replay: Replay, number: int) -> str:
    """The first sentence: the predicted step against the measured one, or against the one before the change."""
    scored = replay.scored(number)
    trace = replay.ranks[number].view.trace
    measured_ns = mean(step.window.length_ns for step in scored)
    predicted_ns = mean(step.period.device_ns for step in scored)
    if replay.whats:
        baseline_ns = mean(step.baseline.device_ns for step in scored)
        change = predicted_ns / baseline_ns - 1 if baseline_ns else 0.0
        what = ", ".join(change.title for change in replay.whats)
        return (
            f"Rank {trace.rank}: with {what} a step takes {format_ns(predicted_ns)} instead of "
            f"{format_ns(baseline_ns)} ({change:+.1%}){_because(replay, number)}."
        )
    if not any(step.steady for step in scored):
        return (
            f"Rank {trace.rank}: the host runs ahead. Its dependencies predict {format_ns(predicted_ns)} a step where "
            f"the device took {format_ns(mean(step.device_ns for step in scored))}, and marks "
            f"{format_ns(mean(step.predicted_ns for step in scored))} apart where they were {format_ns(measured_ns)}."
        )
    predicted_ns = mean(step.predicted_ns for step in scored)
    error = mean(abs(step.error) for step in scored)
    noise = _noise([step.window.length_ns for step in scored])
    return (
        f"Rank {trace.rank}: its dependencies predict {format_ns(predicted_ns)} a step where {format_ns(measured_ns)} "
        f"was measured ({error:.1%} off; the measured steps vary by {noise:.1%})."
    )


def _because(replay: Replay, number: int) -> str:
    """Which communication takes another time than recorded."""
    found = changes(typical_step(replay, number))
    parts = [
        f"{change.count} {kind} {format_ns(change.new_ns)} instead of {format_ns(change.recorded_ns)}"
        for kind, change in sorted(found.items())
        if change.new_ns != change.recorded_ns
    ]
    return ": " + ", ".join(parts) if parts else ""


def _shares(parts: dict[str, int]) -> str:
    total = max(sum(parts.values()), 1)
    ordered = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    return ", ".join(f"{name.replace('_', ' ')} {value / total:.0%}" for name, value in ordered if value * 200 >= total)
