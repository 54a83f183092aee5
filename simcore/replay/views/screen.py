"""A replay on a terminal: where the time is and what to do, how far that can be trusted, then the figures behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from statistics import mean

from simcore.replay.kinds import plain
from simcore.replay.session import Replay, StepReplay
from simcore.replay.views.ablation import Ablations
from simcore.replay.views.breakdown import (
    TaskTotal,
    critical_path,
    critical_tasks,
    idle_causes,
    largest_tasks,
    measured,
    predicted,
    sides,
)
from simcore.replay.views.helps import Help
from simcore.replay.views.job import Job, job
from simcore.replay.views.origin import origin_of, pauses
from simcore.replay.views.report import (
    Trust,
    batch,
    changed_interval_ns,
    mean_breakdown,
    noise,
    start_errors,
    trust,
    typical_step,
    waiting,
    warnings,
)
from simcore.replay.views.work import work
from simcore.replay.whatif.communication import changes
from simcore.replay.whatif.layers import layers_if_clear
from simcore.report.table import Table, columns, shorten
from simcore.report.text import wrapped
from simcore.units import format_ns, format_rate
from simcore.workload.kineto import HostUse

__all__ = ["answer", "to_text"]

TASKS_SHOWN, TASKS_ON_PATH, HELPS_SHOWN = 5, 3, 8
NAME_WIDTH, WIDTH, INDENT = 60, 110, 2
LEAST_SHARE = 0.005


def to_text(replay: Replay, helps: Sequence[Sequence[Help]] = (), ablations: Ablations | None = None) -> str:
    """The answer in a sentence, then what it rests on."""
    found = job(replay)
    parts = [_job_text(found)] if len(replay.ranks) > 1 and not replay.whats else []
    waits = max(found.ranks, key=lambda one: (one.waiting_ns, -one.rank))
    for number, one in enumerate(found.ranks):
        if one in (found.slowest, waits):
            parts.append(_rank_text(replay, number, helps[number] if helps else ()))
    if ablations:
        parts.append(_ablation_table(replay, ablations))
    return _joined(parts)


def _job_text(found: Job) -> str:
    """All ranks: how they share the time, and in which groups they talk. Two of them follow in full."""
    one, times = found.slowest, [rank.step_ns for rank in found.ranks]
    said = f"{len(found.ranks)} ranks: a step takes {format_ns(min(times))} to {format_ns(max(times))}. "
    if found.matched:
        waiting, skew = sum(rank.waiting_ns for rank in found.ranks), [format_ns(each) for each in found.skew_ns]
        said += f"Rank {one.rank} is waited for most: {format_ns(one.awaited_ns)} of the {format_ns(waiting)} a step "
        said += f"that ranks wait for each other in {found.matched} collectives, which they reach {skew[0]} apart "
        said += f"(median; at most {skew[1]}). It and the rank that waits most follow; --json has all."
    else:
        said += "No collective was recorded on two of them: they are replayed apart."
    rows = [
        (each.rank, each.stage if each.stage >= 0 else None, each.step_ns, each.compute_ns, each.exposed_comm_ns,
         each.waiting_ns, each.awaited_ns, each.last_in, each.waits_for if each.waits_for >= 0 else None)
        for each in found.ranks
    ]  # fmt: skip
    spent = "step_ns", "computing_ns", "only_talking_ns", "waiting_ns", "waited_for_ns"
    ranks = Table("", columns("rank", "stage", *spent, "last_in", "waits_for"), rows)
    stages = {each.stage for each in found.ranks} - {-1}
    said += f" They are the {len(stages)} stages of a pipeline." if stages else ""
    groups = [
        (each.role or "?", each.description, f"{each.groups} x {each.size}", each.collectives, each.transfer_ns,
         each.waiting_ns)
        for each in found.groups
    ]  # fmt: skip
    shown = columns("group", "described_as", "groups x ranks", "collectives", "transfer_ns", "waiting_ns")
    return _joined([wrapped(said, WIDTH), ranks.text(WIDTH, INDENT), Table("", shown, groups).text(WIDTH, INDENT)])


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(filter(None, parts))


def _ablation_table(replay: Replay, ablations: Ablations) -> str:
    """The mean error of a step with residuals, without, and then without one more kind of dependency."""
    ranks = [(f"{number}", f"rank {one.view.trace.rank}", ".2%") for number, one in enumerate(replay.ranks)]
    rows = [(name.replace("_", " "), *errors) for name, errors in ablations.items()]
    return Table("", columns("mean error of a step", *ranks), rows).text(WIDTH)


def _rank_text(replay: Replay, number: int, helps: Sequence[Help]) -> str:
    said = [answer(replay, number), wrapped(_trusted(trust(replay, number), replay, number), WIDTH)]
    step = typical_step(replay, number)
    tables = (_helps(helps), _work(step), _pauses(step), _steps(replay, number), _breakdown(replay, number))
    return _joined(
        ["\n".join(said), *(each.text(WIDTH, INDENT) for each in tables), "\n".join(_explanations(replay, number))]
    )


def answer(replay: Replay, number: int) -> str:
    """The first sentence: whose time a step is, or what it takes with changes."""
    scored, typical = replay.scored(number), typical_step(replay, number)
    rank = replay.ranks[number].view.trace.rank
    if replay.whats:
        baseline_ns, predicted_ns = (
            mean(getattr(step, side).device_ns for step in scored) for side in ("baseline", "period")
        )
        change = predicted_ns / baseline_ns - 1 if baseline_ns else 0.0
        what = ", ".join(map(str, replay.whats))
        bounds = [predicted_ns + end - typical.period.device_ns for end in changed_interval_ns(replay, number)]
        span = " to ".join(map(format_ns, bounds))
        grown = (
            batch(replay.batches(number), baseline_ns, predicted_ns, replay.tokens)
            if baseline_ns and predicted_ns
            else ""
        )
        interval = f"; {span} by how much of communication is waiting" if bounds[0] < bounds[1] else ""
        return (
            f"Rank {rank}: with {what} a step takes {format_ns(predicted_ns)} instead of "
            f"{format_ns(baseline_ns)} ({change:+.1%}){_because(replay, number)}{grown}{interval}."
        )
    path = critical_path(typical)
    shares = sorted(sides(path).items(), key=lambda side: -side[1])
    listed = ", ".join(f"{share:.0%} {side}" for side, share in shares if share >= LEAST_SHARE)
    time_ns = mean(step.measured_ns for step in scored)
    first = shares[0][0] if shares[0][0].startswith("delays") else f"the {shares[0][0]}"
    bound = f"is bound by {first}" if shares[0][1] else "does nothing that is recorded"
    return f"Rank {rank} {bound}: of the {format_ns(time_ns)} that a step takes, the critical path is {listed}."


def _trusted(found: Trust, replay: Replay, number: int) -> str:
    """How far the replay is off, beside the null model, and what the trace can say of it."""
    scored = replay.scored(number)
    off = f"Replayed from its dependencies a step is {found.unaided_error:.1%} off"
    off += f" ({found.period_error:.1%} as asked)" if abs(found.period_error - found.unaided_error) >= 0.0005 else ""
    null = f"; a null model without waits between streams, ranks and for the device is {found.null_error:.1%} off"
    if len(replay.steps[number]) == 1:
        says = ": of a single step the record is the replay, which says little of the next"
    elif not found.tested:
        says = ": as good, so dependencies are not tested by this trace"
    else:
        says = f"; the measured steps vary by {noise([step.measured_ns for step in scored]):.1%}"
    rest = (
        f" {found.host_share:.0%} of the path is recorded host time, {found.coverage:.0%} of late starts are explained."
    )
    behind = [step for step in scored if not step.steady]
    if behind:
        was, now = (mean(map(side, behind)) for side in (lambda s: s.window.length_ns, lambda s: s.predicted_ns))
        device, played = (mean(map(side, behind)) for side in (lambda s: s.device_ns, lambda s: s.period.device_ns))
        rest += (
            f" In {len(behind)} of {len(scored)} steps the device does not keep the marks' time: it took "
            f"{format_ns(device)} (predicted {format_ns(played)}), the marks are {format_ns(was)} apart "
            f"({format_ns(now)})."
        )
    return off + null + says + "." + rest


def _helps(helps: Sequence[Help]) -> Table:
    rows = [
        (row.what, row.saved_ns, " to ".join(map(format_ns, row.interval_ns)), row.option)
        for row in helps[:HELPS_SHOWN]
    ]
    shown = columns(("what", "what would help most"), ("saved_ns", "a step saves"), "from, to", "replayed with")
    return Table("", shown, rows)


def _work(step: StepReplay) -> Table:
    """What the device worked on in the typical step, as recorded."""
    rows = [
        (one.category, one.count, one.time_ns, one.time_ns / max(step.measured_ns, 1),
         _rate(one.rate, one.unit, one.limit))
        for one in work(step)
        if one.time_ns
    ]  # fmt: skip
    return Table("", columns("on the device", "tasks", "time_ns", ("share", "of the step"), "reaching"), rows)


def _rate(rate: float, unit: str, limit: float) -> str:
    if not rate:
        return ""
    shown = format_rate(rate) if unit == "byte/s" else f"{rate / 1e12:.3g} TFLOP/s"
    return shown + (f", {rate / limit:.0%} of the device's" if limit else "")


def _pauses(step: StepReplay) -> Table:
    rows = [
        (each.length_ns, plain(each.before), ", ".join(filter(None, (each.call, str(each.host)))) or "nothing recorded")
        for each in pauses(step)
    ]
    return Table("", columns("device_idle_ns", "until", "while the host is in"), rows)


def _steps(replay: Replay, number: int) -> Table:
    rows = []
    for step in replay.steps[number]:
        note = f"device {format_ns(step.device_ns)}, predicted {format_ns(step.period.device_ns)}" * (not step.steady)
        rows.append((step.window.index, step.window.length_ns, step.predicted_ns, step.error, note))
    return Table("", columns("step", "measured_ns", "predicted_ns", ("error", "error", "+share"), ("note", "")), rows)


def _breakdown(replay: Replay, number: int) -> Table:
    both = [asdict(mean_breakdown([side(step) for step in replay.scored(number)])) for side in (measured, predicted)]
    rows = [
        (
            key.removesuffix("_ns").replace("_", " "),
            *(figure for side in both for figure in (side[key], side[key] / max(sum(side.values()), 1))),
        )
        for key in both[0]
        if both[0][key] or both[1][key]
    ]
    shares = [(f"{side}_share", "of it", "share") for side in ("measured", "predicted")]
    return Table("", columns("breakdown", "measured_ns", shares[0], "predicted_ns", shares[1]), rows)


def _explanations(replay: Replay, number: int) -> Iterator[str]:
    """What the prediction rests on, for the typical step."""
    prepared, typical = replay.ranks[number], typical_step(replay, number)
    errors = start_errors(replay, number)
    yield f"  task starts off by {format_ns(errors['p50'])} (median), {format_ns(errors['p90'])} (p90)"
    counts = typical.graph.edge_counts(typical.number)
    yield "  edges: " + ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)
    yield "  critical path: " + _shares(critical_path(typical))
    yield from _task_lines(replay, number, critical_tasks(typical, TASKS_ON_PATH))
    yield "  device idle, by cause: " + (_shares(idle_causes(typical)) or "never")
    waited = waiting(typical)
    if waited["waiting_ns"]:
        bounds = (
            ""
            if waited["least_ns"] == waited["most_ns"]
            else ", {} to {}".format(*(format_ns(waited[key]) for key in ("least_ns", "most_ns")))
        )
        shown = (format_ns(waited[key]) for key in ("waiting_ns", "time_ns"))
        yield "  communication: {} of {} is waiting for other ranks{}".format(*shown, bounds)
    stack = layers_if_clear(prepared.view, typical.position)
    yield from [f"  layers: {stack}"] if stack else []
    yield from _host_text(prepared.view.trace.host)
    yield "  largest tasks:"
    yield from _task_lines(replay, number, largest_tasks(typical, TASKS_SHOWN))
    yield from (f"  warning: {text}" for text in warnings(replay, number))


def _task_lines(replay: Replay, number: int, tasks: list[TaskTotal]) -> Iterator[str]:
    step = typical_step(replay, number)
    for task in (one for one in tasks if one.time_ns):
        rank = "" if task.rank == step.prepared.view.trace.rank else f" on rank {task.rank}"
        come = "" if rank else str(origin_of(step, task.name))
        name = shorten(plain(task.name), NAME_WIDTH)
        line = f"    {format_ns(task.time_ns):>10} {task.count:>5} x {name}{rank}"
        yield line + (f"  ({shorten(come, max(WIDTH - len(line), NAME_WIDTH // 2))})" if come else "")


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
    listed = [(name, value / total) for name, value in ordered if value >= LEAST_SHARE * total]
    return ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in listed)
