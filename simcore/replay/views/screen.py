"""A replay on a terminal: where the time is and what to do, how far that can be trusted, then the figures behind it.

All of it is said by the document of `views.report`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from simcore.replay.kinds import plain
from simcore.replay.views.report import LEAST_SHARE, noise
from simcore.report.table import Table, columns, shorten
from simcore.report.text import wrapped
from simcore.units import format_ns, format_rate

TASKS_SHOWN, TASKS_ON_PATH, HELPS_SHOWN = 5, 3, 8
NAME_WIDTH, WIDTH, INDENT = 60, 110, 2
Figures = Mapping[str, Any]  # of one rank, or of one thing in it


def to_text(document: Figures) -> str:
    """The answer in a sentence, then what it rests on."""
    found, ranks = document["job"]["ranks"], document["ranks"]
    slowest = next(one for one in found if one["rank"] == document["job"]["slowest"])
    waits = max(found, key=lambda one: (one["waiting_ns"], -one["rank"]))
    parts = [_job_text(document["job"], slowest)] if len(ranks) > 1 and "retimed" not in ranks[0] else []
    for rank in (rank for rank, one in zip(ranks, found, strict=True) if one in (slowest, waits)):
        tables = (each.text(WIDTH, INDENT) for each in (*_advice(rank), *_figures(rank)))
        said = "\n".join((rank["answer"], wrapped(_trusted(rank), WIDTH)))
        parts.append("\n\n".join(filter(None, (said, *tables, "\n".join(_explanations(rank))))))
    if "ablations" in ranks[0]:  # with residuals, without, and then without one more kind of dependency
        errors = [(f"{number}", f"rank {rank['rank']}", ".2%") for number, rank in enumerate(ranks)]
        names = ranks[0]["ablations"]
        rows = [(name.replace("_", " "), *(rank["ablations"][name] for rank in ranks)) for name in names]
        parts.append(Table("", columns("mean error of a step", *errors), rows).text(WIDTH))
    return "\n\n".join(parts)


def _job_text(found: Figures, slowest: Figures) -> str:
    """All ranks: how they share the time, and in which groups they talk. Two of them follow in full."""
    ranks, times = found["ranks"], [rank["step_ns"] for rank in found["ranks"]]
    said = f"{len(ranks)} ranks: a step takes {format_ns(min(times))} to {format_ns(max(times))}. "
    if found["matched"]:
        waiting, skew = sum(rank["waiting_ns"] for rank in ranks), [format_ns(each) for each in found["skew_ns"]]
        said += f"Rank {slowest['rank']} is waited for most: {format_ns(slowest['awaited_ns'])} of the "
        said += f"{format_ns(waiting)} a step that ranks wait for each other in {found['matched']} collectives, which "
        said += f"they reach {skew[0]} apart (median; at most {skew[1]}). It and the rank that waits most follow; "
        said += "--json has all."
    else:
        said += "No collective of one matches one of another: they are replayed apart."
    rows = [{key: None if value == -1 else value for key, value in each.items()} for each in ranks]
    talk, awaited = ("exposed_comm_ns", "only talking"), ("awaited_ns", "waited for")
    spent = "step_ns", ("compute_ns", "computing"), talk, "waiting_ns", awaited
    table = Table("", columns("rank", "stage", *spent, "last_in", "waits_for"), rows)
    stages = {each["stage"] for each in ranks} - {-1}
    said += f" They are the {len(stages)} stages of a pipeline." if stages else ""
    sizes = ((each, f"{each['groups']} x {each['size']}") for each in found["groups"])
    groups = [each | {"group": each["role"] or "?", "groups x ranks": size} for each, size in sizes]
    described = ("description", "described as")
    shown = columns("group", described, "groups x ranks", "collectives", "transfer_ns", "waiting_ns")
    tables = (table, Table("", shown, groups))
    return "\n\n".join(filter(None, (wrapped(said, WIDTH), *(each.text(WIDTH, INDENT) for each in tables))))


def _trusted(rank: Figures) -> str:
    """How far the replay is off, beside the null model, and what the trace can say of it."""
    scored = rank["steps"][1:] or rank["steps"]
    off = f"Replayed from its dependencies a step is {rank['unaided_error']:.1%} off"
    asked = abs(rank["period_error"] - rank["unaided_error"]) >= 0.0005
    off += f" ({rank['period_error']:.1%} as asked)" if asked else ""
    null = f"; a null model without waits between streams, ranks and for the device is {rank['null_error']:.1%} off"
    if len(rank["steps"]) == 1:
        says = ": of a single step the record is the replay, which says little of the next"
    elif not rank["tested"]:
        says = ": as good, so dependencies are not tested by this trace"
    else:
        lengths = [int(step["measured_ns" if step["steady"] else "device_ns"]) for step in scored]
        says = f"; the measured steps vary by {noise(lengths):.1%}"
    rest = f" {rank['host_share']:.0%} of the path is recorded host time, "
    rest += f"{rank['coverage']:.0%} of late starts are explained."
    behind = [step for step in scored if not step["steady"]]
    if behind:
        keys = ("device_ns", "predicted_device_ns", "measured_ns", "predicted_ns")
        device, played, was, now = (format_ns(mean(step[key] for step in behind)) for key in keys)
        rest += f" In {len(behind)} of {len(scored)} steps the device does not keep the marks' time: it took "
        rest += f"{device} (predicted {played}), the marks are {was} apart ({now})."
    return off + null + says + "." + rest


def _advice(rank: Figures) -> Iterator[Table]:
    """What would help, what the device worked on in the typical step as recorded, and when it paused."""
    helps = ((row, " to ".join(map(format_ns, row["interval_ns"]))) for row in rank.get("helps", ())[:HELPS_SHOWN])
    shown = columns(
        ("what", "what would help most"), ("saved_ns", "a step saves"), "from, to", ("option", "replayed with")
    )
    yield Table("", shown, [row | {"from, to": bounds} for row, bounds in helps])
    whole_ns, rows = max(rank["typical_ns"], 1), list[tuple[object, ...]]()
    for each in (each for each in rank["work"] if each["time_ns"]):
        rate = format_rate(each["rate"]) if each["unit"] == "byte/s" else f"{each['rate'] / 1e12:.3g} TFLOP/s"
        rate += f", {each['rate'] / each['limit']:.0%} of the device's" if each["limit"] else ""
        share = each["time_ns"] / whole_ns
        rows.append((each["category"], each["count"], each["time_ns"], share, rate if each["rate"] else ""))
    yield Table("", columns("on the device", "tasks", "time_ns", ("share", "of the step"), "reaching"), rows)
    rows = [
        (each["length_ns"], plain(each["before"]), _origin(each["host"], each["call"]) or "nothing recorded")
        for each in rank["pauses"]
    ]
    yield Table("", columns("device_idle_ns", "until", "while the host is in"), rows)


def _origin(origin: Mapping[str, str], *before: str) -> str:
    """Operator, module and line, as far as they are known."""
    return ", ".join(filter(None, (*before, *origin.values())))


def _figures(rank: Figures) -> Iterator[Table]:
    """Every step, and the breakdown of the typical one."""
    told = "device {}, predicted {}".format
    devices = (() if step["steady"] else (step["device_ns"], step["predicted_device_ns"]) for step in rank["steps"])
    notes = (told(*map(format_ns, device)) if device else "" for device in devices)
    steps = [step | {"note": note} for step, note in zip(rank["steps"], notes, strict=True)]
    shown = columns(("index", "step"), "measured_ns", "predicted_ns", ("error", "error", "+share"), ("note", ""))
    yield Table("", shown, steps)
    both = [rank["breakdown"][side] for side in ("measured", "predicted")]
    rows = [
        (
            key.removesuffix("_ns").replace("_", " "),
            *(figure for side in both for figure in (side[key], side[key] / max(sum(side.values()), 1))),
        )
        for key in both[0]
        if both[0][key] or both[1][key]
    ]
    shares = [(f"{side}_share", "of it", "share") for side in ("measured", "predicted")]
    yield Table("", columns("breakdown", "measured_ns", shares[0], "predicted_ns", shares[1]), rows)


def _explanations(rank: Figures) -> Iterator[str]:
    """What the prediction rests on, for the typical step."""
    errors, waited = rank["kernel_start_error_ns"], rank["waiting"]
    yield f"  task starts off by {format_ns(errors['p50'])} (median), {format_ns(errors['p90'])} (p90)"
    yield "  edges: " + ", ".join(f"{kind} {count}" for kind, count in rank["edges"].items() if count)
    yield "  critical path: " + _shares(rank["critical_path_ns"])
    yield from _task_lines(rank, rank["critical_tasks"][:TASKS_ON_PATH])
    yield "  device idle, by cause: " + (_shares(rank["idle_causes_ns"]) or "never")
    filled = rank["utilisation"]
    if filled["sm_measured"]:
        means = {key: f"{mean(values):.0%}" for key, values in filled.items() if key != "bin_ns"}
        said = "in use {sm_measured} (predicted {sm_predicted}), warps occupied {occupancy_measured}"
        yield "  multiprocessors, mean of the step: " + f"{said} ({{occupancy_predicted}})".format(**means)
    if waited["waiting_ns"]:
        shown = {key: format_ns(value) for key, value in waited.items()}
        bounds = ", {least_ns} to {most_ns}" if waited["least_ns"] != waited["most_ns"] else ""
        yield ("  communication: {waiting_ns} of {time_ns} is waiting for other ranks" + bounds).format(**shown)
    if stack := rank["layers"]:
        alike = "" if stack["alike"] == stack["count"] else f", {stack['alike']} of them alike"
        how = f"named {stack['name']!r}" if stack["name"] else "by repetition"
        yield f"  layers: {stack['count']} layers of {stack['kernels']} kernels{alike}, {how}"
    if host := rank["host_trace"]:  # what a host execution trace added
        repeated = f", an iteration that repeats {host['stretches']} times" if host["stretches"] > 1 else ""
        unsized = f" ({host['unsized']} communication kernels without)" if host["unsized"] else ""
        found = f"{host['found']} of {host['operations']} operations found by {host['matched_by']}{repeated}"
        shapes = f"shapes of {host['products']} products, sizes of {host['collectives']} collectives{unsized}"
        yield f"  host trace: {found}; {shapes}"
    yield "  largest tasks:"
    yield from _task_lines(rank, rank["largest_tasks"][:TASKS_SHOWN])
    yield from (f"  warning: {text}" for text in rank["warnings"])


def _task_lines(rank: Figures, tasks: Sequence[Figures]) -> Iterator[str]:
    for task in (one for one in tasks if one["time_ns"]):
        where = "" if task["rank"] == rank["rank"] else f" on rank {task['rank']}"
        come, name = _origin(task["origin"]), shorten(plain(task["name"]), NAME_WIDTH)
        line = f"    {format_ns(task['time_ns']):>10} {task['count']:>5} x {name}{where}"
        yield line + (f"  ({shorten(come, max(WIDTH - len(line), NAME_WIDTH // 2))})" if come else "")


def _shares(parts: dict[str, int]) -> str:
    total = max(sum(parts.values()), 1)
    ordered = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    listed = [(name, value / total) for name, value in ordered if value >= LEAST_SHARE * total]
    return ", ".join(f"{name.replace('_', ' ')} {share:.0%}" for name, share in listed)
