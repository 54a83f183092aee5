"""`simcore cost failures`: what stops, rollbacks and checkpoints leave of a run of days."""

from __future__ import annotations

from math import fsum, isinf
from typing import Any

import numpy as np

from simcore.cli.command import emit, warn
from simcore.cost.closed.operation import wall_clock_s
from simcore.cost.failures import LOSSES, Checkpoint, FailureRun, Failures, draw
from simcore.errors import InputError
from simcore.report.table import Table, columns

SHARES = (5, 50, 95)
SECONDS_PER_DAY = 86400.0
WORDS = {
    "checkpoint_s": "checkpoints", "rollback_s": "thrown away", "restart_s": "noticing, starting, loading",
    "waiting_s": "waiting for nodes", "slower_s": "running with fewer nodes",
}  # fmt: skip
CLOCK = ((SECONDS_PER_DAY, "days"), (3600, "h"), (60, "min"))
MOST_FAILURES = 10**8  # some three minutes: 0.5 million a second


def command(runs: int, seed: int, days: float, replica_nodes: int | None, **given: Any) -> None:
    """Draw runs whose nodes fail, and say what share of the time they trained."""
    parts = ("size_bytes", "storage_bytes_per_s", "node_bytes_per_s", "snapshot_bytes_per_s", "network_busy")
    given = {name: value for name, value in given.items() if value is not None}
    checkpoint = Checkpoint(**{name: given.pop(name) for name in parts if name in given})
    if replica_nodes and given["nodes"] % replica_nodes:
        divisor = f"a divisor of {given['nodes']}"
        raise InputError.at("--elastic", "not whole replicas", expected=divisor, found=str(replica_nodes))
    asked = Failures(**given, checkpoint=checkpoint, wall_s=days * SECONDS_PER_DAY, replica_nodes=replica_nodes or 0)
    expected = asked.wall_s / asked.machine_mtbf_s * runs
    if expected > MOST_FAILURES:
        hint = "a longer --mtbf (a bare number is in ns), fewer --days or fewer --runs"
        most, drawn = f"at most {MOST_FAILURES:,} in all runs", f"some {expected:.3g}"
        raise InputError.at("--mtbf", "too many failures to draw", expected=most, found=drawn, hint=hint)
    if (asked.spares or asked.replica_nodes) and not asked.repair_s:
        warn("spare nodes and --elastic change nothing without --repair: a node that failed is back at once")
    if checkpoint.network_busy and isinf(checkpoint.node_bytes_per_s):
        warn("--network-busy changes nothing without --node-bandwidth: writing takes no time on a node's links")
    found = draw(asked, runs, seed)
    document = _document(asked, found)
    emit(document, lambda: _text(asked, found, document))


def _document(asked: Failures, found: list[FailureRun]) -> dict[str, object]:
    shares = [run.useful_s / asked.wall_s for run in found]
    lost_s = {name: fsum(run.lost_s[name] for run in found) / len(found) for name in LOSSES}
    checkpoint, work_s = asked.checkpoint, asked.work_s(asked.nodes)
    blocks_s, write_s = checkpoint.blocks_s(asked.nodes), checkpoint.write_s(asked.nodes)
    # If a node is there; work of the time in which a checkpoint is written behind is lost as that of a start is.
    back_s = asked.detect_s + asked.restart_s + write_s + checkpoint.behind_s(asked.nodes)
    try:
        daly = 1 / wall_clock_s(1.0, work_s, blocks_s, back_s, asked.machine_mtbf_s)
    except InputError:
        daly = 0.0
    quantiles = {f"p{share}": float(np.percentile(shares, share)) for share in SHARES}
    return {
        "schema": "simcore.failures/1",
        "goodput": {"mean": fsum(shares) / len(shares), **quantiles},
        "stops": fsum(run.stops for run in found) / len(found),
        "lost": lost_s,
        "interval_s": work_s,
        "checkpoint_s": blocks_s,
        "machine_mtbf_s": asked.machine_mtbf_s,
        "smallest_nodes": min(run.smallest for run in found),
        "daly_goodput": daly,
    }


def _text(asked: Failures, found: list[FailureRun], document: dict[str, Any]) -> str:
    good, days = document["goodput"], asked.wall_s / SECONDS_PER_DAY
    shares = [(WORDS[name], document["lost"][name] / asked.wall_s) for name in LOSSES]
    lost = Table("", columns("lost to", ("share", "share", ".2%")), shares)
    stopped, every, mtbf = (_clock(document[name]) for name in ("checkpoint_s", "interval_s", "machine_mtbf_s"))
    checkpoints = f"A checkpoint stops the run for {stopped}, after every {every} of work."
    if not document["checkpoint_s"]:
        checkpoints = "A checkpoint takes no time: --checkpoint-size and --storage say how much."
    stops = f"stops {document['stops']:.1f} times (mean of {len(found)} draws)"
    lines = [
        f"The run trains {good['mean']:.2%} of {days:g} day{'s' * (days != 1)} on {_nodes(asked.nodes)} and {stops}.",
        f"Goodput: p5 {good['p5']:.2%}, p50 {good['p50']:.2%}, p95 {good['p95']:.2%}.",
        "",
        lost.text(),
        "",
        f"{checkpoints} Some node fails every {mtbf}.",
        f"Goodput by Daly's formula, were a node always at hand: {document['daly_goodput']:.2%}.",
    ]
    lines.append("Simplified: nodes fail independently and at one rate, and storage has no other users.")
    if document["smallest_nodes"] < asked.nodes:
        lines.append(f"At the worst {_nodes(document['smallest_nodes'])} ran.")
    return "\n".join(lines)


def _clock(seconds: float) -> str:
    """Seconds up to some minutes, then minutes, hours and days."""
    scale, unit = next((pair for pair in CLOCK if seconds >= 2 * pair[0]), (1, "s"))
    return f"{seconds / scale:.3g} {unit}"


def _nodes(count: int) -> str:
    return f"{count:,} node{'s' * (count != 1)}"
