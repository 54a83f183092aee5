"""What another pipeline takes, for people and as JSON."""

from __future__ import annotations

from dataclasses import asdict

from simcore.replay.pipelines.pipeline import Rebuilt
from simcore.replay.pipelines.stages import Plan
from simcore.replay.views.report import batch
from simcore.report.table import Table, columns
from simcore.units import format_ns

__all__ = ["pipeline_dict", "pipeline_text"]

SHARES = {"compute_ns": "compute", "overlapped_ns": "overlapped", "exposed_comm_ns": "exposed", "idle_ns": "bubble"}


def pipeline_dict(rebuilt: Rebuilt) -> dict[str, object]:
    """The key `pipeline` of the replay's document."""
    return {
        "recorded": asdict(rebuilt.recorded.plan),
        "period_ns": rebuilt.period_ns,
        "compiled_ns": rebuilt.base.timeline.time_ns if rebuilt.base else None,
        "compiled_error": rebuilt.base_error,
        "target": asdict(rebuilt.plan),
        "predicted_ns": rebuilt.report.timeline.time_ns,
        "stages": _stages(rebuilt),
        "notes": list(rebuilt.report.timeline.notes),
    }


def _stages(rebuilt: Rebuilt) -> list[dict[str, object]]:
    document = rebuilt.report.to_dict()
    if "pipeline" in document:
        return [dict(stage) for stage in document["pipeline"]["stages"]]
    return [{"stage": 0, "ranks": f"0-{rebuilt.plan.npus - 1}", **document["breakdown"]}]


def _plan(plan: Plan) -> str:
    sizes = f"tp {plan.tp}, pp {plan.pp}, dp {plan.dp}, {plan.layers} layers, {plan.micro_batches} micro-batches"
    return f"{sizes}, {plan.schedule}" + (f" with {plan.vpp} chunks" if plan.vpp > 1 else "")


def pipeline_text(rebuilt: Rebuilt, tokens: int = 0) -> str:
    """The answer in a sentence, its stages, and how good the same way of predicting is for the recorded step."""
    time_ns, period_ns = rebuilt.report.timeline.time_ns, rebuilt.period_ns
    answer = f"{format_ns(time_ns)} instead of {format_ns(period_ns)} ({time_ns / period_ns - 1:+.1%})"
    plan, old = rebuilt.plan, rebuilt.recorded.plan
    batches = plan.dp * plan.micro_batches / (old.dp * old.micro_batches)
    answer += batch(batches, period_ns, time_ns, tokens)
    figures = [(key, title, "ns") for key, title in SHARES.items()]
    stages = Table("", columns("stage", "ranks", *figures), _stages(rebuilt))
    lines = [f"With {_plan(rebuilt.plan)} a step takes {answer}.", "", stages.text(indent=2)]
    lines += ["", f"  recorded: {_plan(rebuilt.recorded.plan)}; replayed in {format_ns(period_ns)}"]
    if rebuilt.base is None:
        lines.append("  --recorded-topology T plays the recorded pipeline in the same way, to see how far that is off")
    else:
        compiled_ns = format_ns(rebuilt.base.timeline.time_ns)
        lines.append(f"  the recorded pipeline, played in the same way: {compiled_ns} ({rebuilt.base_error:+.1%})")
    return "\n".join([*lines, *(f"  note: {note}" for note in rebuilt.report.timeline.notes)])
