"""The report of a replay: the figures and the JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, stdev

import numpy as np
from msgspec import Struct, to_builtins
from msgspec.structs import asdict

import simcore
from simcore.replay.kinds import SUSPECTED, plain
from simcore.replay.session import Replay, StepReplay
from simcore.replay.views import breakdown
from simcore.replay.views.changed import Help, changed_interval_ns, changes, headline
from simcore.replay.views.job import job
from simcore.replay.views.trial import Ablations
from simcore.replay.views.work import Origin, origin_of, pauses, work
from simcore.replay.whatif.layers import layers_if_clear
from simcore.replay.whatif.retiming import Retimed
from simcore.timeline.breakdown import Breakdown
from simcore.units import format_ns

SCHEMA = "simcore.replay/1"
TESTED = 0.01  # by so much the null model must be worse for a trace to test anything
BIN_NS, LEAST_BINS = 1_000_000, 40
LEAST_SHARE = 0.005  # of a path; less is not named
NOWHERE = Origin("", "", "")


def to_dict(
    replay: Replay, helps: Sequence[Sequence[Help]] = (), ablations: Ablations | None = None
) -> dict[str, object]:
    """The JSON document: plain data, ready to be written with sorted keys."""
    ranks = [_rank(replay, number) for number in range(len(replay.ranks))]
    for rank, own in zip(ranks, helps, strict=False):
        rank["helps"] = own
    for number, rank in enumerate(ranks if ablations else ()):
        rank["ablations"] = {name: errors[number] for name, errors in (ablations or {}).items()}
    found = job(replay)
    whole = asdict(found) | {"slowest": found.slowest.rank}
    last = {str(one.rank): one.last_in for one in found.ranks if one.last_in}
    head = {"schema": SCHEMA, "version": simcore.__version__}
    document: dict[str, object] = to_builtins(head | {"ranks": ranks, "job": whole, "stragglers": last})
    return document


class Utilisation(Struct, frozen=True):
    """The share of each bin of a typical step in which at least one stream ran something.

    Where kernels say their blocks and occupancy, also the share of the multiprocessors that have a block (`sm_`), and
    of the warps that they could hold; kernels that run at once on a device add up, several devices have a mean.
    """

    bin_ns: int
    measured: list[float]
    predicted: list[float]
    sm_measured: list[float] = []
    sm_predicted: list[float] = []
    occupancy_measured: list[float] = []
    occupancy_predicted: list[float] = []


def utilisation(replay: Replay, number: int) -> Utilisation:
    """In bins of a millisecond as in Lumos; of 1, 2 or 5 times a power of ten where these would be few."""
    step = replay.typical(number)
    longest_ns = max(step.measured_span_ns[1] - step.measured_span_ns[0], step.to_ns - step.from_ns)
    fine = [size for power in (1_000, 10_000, 100_000) for size in (power, 2 * power, 5 * power)]
    bin_ns = max((size for size in (*fine, BIN_NS) if size * LEAST_BINS <= longest_ns), default=fine[0])
    trace = step.prepared.view.trace
    known = np.zeros((2, len(trace.tasks)))
    known[:, list(trace.multiprocessors)] = np.array([*trace.multiprocessors.values()]).reshape(-1, 2).T
    devices = np.array([device for device, _ in trace.streams])[trace.tasks.lane]
    sides = [*breakdown.taken(step, bin_ns, np.ones(len(trace.tasks)))]
    for each in known if trace.multiprocessors else ():
        sides += breakdown.taken(step, bin_ns, each, devices)
    return Utilisation(bin_ns, *sides)


def _rank(replay: Replay, number: int) -> dict[str, object]:
    prepared, scored, typical = replay.ranks[number], replay.scored(number), replay.typical(number)
    path, changed = breakdown.critical_path(typical), dict[str, object]()
    if replay.whats:  # what the changes did to the step, and to its communication
        changed["retimed"] = changes(typical)
        changed["changed_interval_ns"] = changed_interval_ns(replay, typical)
        changed["global_batch_factor"] = replay.batches(number)

    def told(tasks: Iterable[breakdown.TaskTotal]) -> list[dict[str, object]]:
        own = prepared.view.trace.rank
        found = [(task, origin_of(typical, task.name) if task.rank == own else NOWHERE) for task in tasks]
        return [asdict(task) | {"origin": origin} for task, origin in found]

    return {
        "answer": answer(replay, number),
        "rank": prepared.view.trace.rank,
        "file": prepared.view.trace.file,
        "device": prepared.view.trace.device,
        "host_trace": prepared.view.trace.host,
        "steps": [_step(step) for step in replay.steps[number]],
        "typical_ns": typical.measured_ns,
        **trust(replay, number),
        "step_noise": noise([step.window.length_ns for step in scored]),
        "breakdown": {
            "measured": mean_breakdown([breakdown.measured(step) for step in scored]),
            "predicted": mean_breakdown([breakdown.predicted(step) for step in scored]),
        },
        "kernel_start_error_ns": start_errors(replay, number),
        "edges": typical.graph.edge_counts(typical.number),
        "utilisation": utilisation(replay, number),
        "sides": breakdown.sides(path),
        "work": work(typical),
        "pauses": pauses(typical),
        "critical_tasks": told(breakdown.critical_tasks(typical)),
        "critical_path_ns": path,
        "idle_causes_ns": breakdown.idle_causes(typical),
        "largest_tasks": told(breakdown.largest_tasks(typical)),
        "layers": layers_if_clear(prepared.view, typical.position),
        "launch_queue_depth": prepared.queue.depth,
        "waiting": waiting(typical),
        **changed,
        "warnings": warnings(replay, number),
    }


def answer(replay: Replay, number: int) -> str:
    """The first sentence: whose time a step is, or what it takes with changes."""
    typical, rank = replay.typical(number), replay.ranks[number].view.trace.rank
    if replay.whats:
        return headline(replay, number, typical)
    shares = sorted(breakdown.sides(breakdown.critical_path(typical)).items(), key=lambda side: -side[1])
    listed = ", ".join(f"{share:.0%} {side}" for side, share in shares if share >= LEAST_SHARE)
    time_ns = mean(step.measured_ns for step in replay.scored(number))
    if not shares[0][1]:
        return f"Rank {rank} does nothing that is recorded in the {format_ns(time_ns)} that a step takes."
    first = shares[0][0] if shares[0][0].startswith("delays") else f"the {shares[0][0]}"
    said = f"of the {format_ns(time_ns)} that a step takes, the critical path is {listed}."
    return f"Rank {rank} is bound by {first}: {said}"


def waiting(step: StepReplay) -> dict[str, int]:
    """Of a step's communication kernels: their time, what of it is waiting, and at least and at most."""
    lengths = {task: step.prepared.view.trace.tasks.length_ns(task) for task in step.tasks}
    found = {"time_ns": 0, "waiting_ns": 0, "least_ns": 0, "most_ns": 0}
    for task in (each for each in step.tasks if each in step.prepared.transfers):
        length, match = lengths[task], step.source.match_of.get((step.number, task))
        estimate, waited = step.prepared.transfers[task], length - step.source.transfer_ns(step.number, task)
        shortest_ns = match.shortest_ns if match else length
        bounds = [length - min(one, shortest_ns) for one in (estimate.most_ns, estimate.least_ns)]
        if match and match.whole:
            bounds = [waited, waited]
        for key, value in zip(found, (length, waited, *bounds), strict=True):
            found[key] += value
    return found


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


def trust(replay: Replay, number: int) -> dict[str, float]:
    """How far the replay is off, and what the trace can say of it, over all steps after the first.

    `unaided_error` is that of dependencies alone, without residuals; where the null model's is as small, or there is a
    single step, the trace tests nothing. `host_share` is the share of the critical path that is recorded host time,
    `coverage` the share of late starts that dependencies explain.
    """
    scored = replay.scored(number)
    period, alone, null = (
        mean(abs(step.error_of(getattr(step, side))) for step in scored) for side in ("baseline", "unaided", "null")
    )
    delays, rows = replay.ranks[number].delays, [task for step in scored for task in step.tasks]
    late = int(delays.late_ns[rows].sum())
    return {
        "period_error": period,
        "unaided_error": alone,
        "null_error": null,
        "tested": len(replay.steps[number]) > 1 and null - alone > TESTED,
        "host_share": breakdown.host_share(breakdown.critical_path(replay.typical(number))),
        "coverage": 1 - int(delays.unexplained_ns[rows].sum()) / late if late else 1.0,
    }


def noise(lengths: list[int]) -> float:
    """The relative spread of measured steps; 0 for one."""
    return stdev(lengths) / mean(lengths) if len(lengths) > 1 and mean(lengths) else 0.0


def mean_breakdown(parts: list[Breakdown]) -> Breakdown:
    """The mean of several breakdowns; idle takes the rounding so that the four still add up."""
    rows = [(part.compute_ns, part.overlapped_ns, part.exposed_comm_ns, part.idle_ns) for part in parts]
    compute, overlapped, exposed = (sum(column) // len(parts) for column in list(zip(*rows, strict=True))[:3])
    return Breakdown(compute, overlapped, exposed, sum(map(sum, rows)) // len(parts) - compute - overlapped - exposed)


def start_errors(replay: Replay, number: int) -> dict[str, int]:
    """How far starts of tasks, counted from the step's mark or the device's start of it, are from the recorded ones."""
    errors = []
    tasks = replay.ranks[number].view.trace.tasks
    for step in replay.scored(number):
        nodes = step.graph.ranks[step.number]
        start = step.timing.start_ns[-1]
        origin_ns = start[nodes.begin] if step.steady else step.from_ns
        found = start[nodes.begins] - origin_ns
        errors.append(np.abs(found - (tasks.start_ns[nodes.tasks] - step.measured_span_ns[0])))
    column = np.concatenate(errors)
    p50, p90 = np.percentile(column, (50, 90)) if len(column) else (0, 0)
    return {"p50": round(p50), "p90": round(p90)}


def warnings(replay: Replay, number: int) -> list[str]:
    """What makes the comparison weaker than it looks."""
    prepared, steps = replay.ranks[number], replay.steps[number]
    trace = prepared.view.trace
    silent = mean(int(prepared.delays.unrecorded_ns[step.tasks].sum()) for step in replay.scored(number))
    unlaunched = int(((prepared.view.launch < 0) & (prepared.view.task_step >= 0)).sum())
    lost = prepared.view.without_task()
    placed = len(replay.ranks) > 1 and not trace.rank_known
    told = (
        (not trace.steps, "no ProfilerStep marks: the whole trace is taken as one step"),
        (trace.endless, f"{trace.endless} events have no duration, or one below 0, and count as taking none"),
        (trace.again, f"{trace.again} events stand in the trace a second time, in all as the first, and count once"),
        (placed, f"neither trace nor file name says a rank; by its place among the files it is {trace.rank}"),
        (silent, f"incomplete trace: {format_ns(silent)} a step inside graphs has no recorded kernel; kept as work"),
        (lost, f"incomplete trace: {lost} launches have no recorded task: it was lost, or captured into a graph"),
        (unlaunched, f"incomplete trace: {unlaunched} tasks have no recorded launch; their delays stay unexplained"),
    )
    found = [text for applies, text in told if applies]
    later = steps[1:] or steps
    if len(steps) > 1 and not any(step.steady for step in later):
        needed = format_ns(mean(step.device_ns for step in later))
        found.append(f"no step is steady: the marks are the host's, the device took {needed} a step")
    strange = np.unique(trace.tasks.name[prepared.view.of_category(SUSPECTED)]).tolist()
    if strange:
        listed = ", ".join(plain(trace.names[name]) for name in strange[:3])
        found.append(f"{len(strange)} kernels look like communication of no known library, taken as work: {listed}")
    contradictions = sum(step.graph.left_out for step in steps)
    if contradictions:
        found.append(f"{contradictions} dependencies contradict the recorded times and are left out")
    found += sorted({step.stream_order.value for step in steps} - {""})
    if unsettled := sum(step.timing.copies > 1 and not step.timing.lasting for step in steps):
        found.append(f"{unsettled} of {len(steps)} steps find no lasting pace: they are the last copies played")
    for what in (what for what in replay.whats if isinstance(what, Retimed)):
        partly = len(replay.ranks) == 1 or not all(match.whole for match in replay.typical(number).source.matches)
        found += what.notes(prepared.view, replay.typical(number).tasks, alone=partly)
    talks = sum(len(prepared.view.communicating(step.position)) for step in steps)
    members = (one.rank == step.number for step in steps for match in step.source.matches for one in match.members)
    if len(replay.ranks) > 1 and replay.changes.coupling and (alone := talks - sum(members)):
        found.append(
            f"{alone} of {talks} collectives have no counterpart on another rank and wait for nobody: it recorded"
            " other steps, or other kernels in the group, or kernels without a group end apart"
        )
    if any(not step.tasks for step in steps):
        found.append("a step launched nothing on the GPU")
    return found
