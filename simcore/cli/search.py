"""simcore search: the best parallelisation of a model on a cluster, under memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from shlex import quote
from typing import Any

from simcore.cli.command import emit
from simcore.cli.table import options_of
from simcore.cost.answer import Answer
from simcore.cost.picture import front_figure
from simcore.cost.predict import predict
from simcore.cost.search import SLOWEST, Candidate, Found, Rival, Study, axes, read_study, rivals, search
from simcore.cost.sensitivity import of_cluster
from simcore.errors import InputError
from simcore.model.effects import idle
from simcore.model.plan import Plan
from simcore.report.plots import save
from simcore.report.table import Table, columns
from simcore.sweep.run import network_usd
from simcore.units import format_ns


def command(study: str, top: int, explain: bool, plot: str | None) -> None:
    """Find the fastest way to run a model that fits: degrees, chunks, micro-batch, recomputation, ZeRO level."""
    asked = read_study(Path(study))
    found = search(asked, top)
    if not found.best:
        raise InputError.at(
            study,
            "nothing fits" if found.tried else "nothing divides evenly",
            expected="more accelerators, more memory, or wider lists of what may vary",
            found=_too_large(found, asked),
        )
    if plot:
        job = f"{asked.model.name} on {asked.accelerators:,} x {asked.cluster.accelerator}"
        save(front_figure(found, job), Path(plot), _front(found))
    best = Answer(asked.model, found.best[0].plan, asked.cluster)
    explained = _explained(best) if explain else {}
    price = network_usd(asked.cluster.topology) if asked.cluster.topology else {}
    told = _document(found) | price | {"predict": " ".join(_words(asked, best.plan))} | explained
    emit(told, lambda: "\n".join(_lines(found, best, told, explained=explain)))


def _words(asked: Study, plan: Plan) -> Iterator[str]:
    """The command that predicts and runs a plan of a study."""
    # What a prediction takes without a word; experts on tensor ranks share the sequence by themselves.
    by_itself = asked.model.experts is not None and plan.tp > 1
    usual = Plan(plan.world_size, plan.seq, global_batch=0, sequence_parallel=by_itself, **asked.cluster.software.usual)
    unsaid = {name for name, _ in idle(asked.model, plan, (field.name for field in fields(plan)))}
    model, cluster = asked.names
    yield f"simcore predict --model {quote(model or 'MODEL.yaml')} --cluster {quote(cluster or 'CLUSTER.yaml')}"
    yield f"--accelerators {plan.world_size} --seq {plan.seq}"
    for one in options_of("plan"):
        name = str(one.name)
        if name not in unsaid and (value := getattr(plan, name, ())) != getattr(usual, name, ()):
            one_by_one = value if one.multiple else [",".join(map(str, value)) if isinstance(value, tuple) else value]
            said = one.opts if value else one.secondary_opts
            yield from (said[0] if one.is_flag else f"{one.opts[0]} {each}" for each in one_by_one)
    yield "--run"


def _too_large(found: Found, asked: Study) -> str:
    """How many candidates there were, and how far the smallest is from fitting."""
    if not found.tried:
        return f"no degrees that divide {asked.accelerators} accelerators and {asked.plan.global_batch} sequences"
    needs, has = found.least_bytes / 1e9, asked.limit_bytes / 1e9
    return f"{found.tried} candidates; the smallest needs {needs:.1f} GB, {has:.1f} GB are to be had"


def _explained(best: Answer) -> dict[str, Any]:
    """How sure the best step is, from measured steps on the system, and what it follows."""
    followed = of_cluster(best.cluster, lambda moved: predict(best.model, best.plan, moved).step_s)
    found = [{"constant": one.constant, "elasticity": one.elasticity} for one in followed[:3]]
    return {"interval_s": list(best.interval_s), "sensitivities": found}


def _document(found: Found) -> dict[str, Any]:
    return {
        "schema": "simcore.search/1",
        "candidates": found.tried,
        "fitting": found.fitting,
        "simulated": found.simulated,
        "best": _entries(found.best),
        "front": _entries(found.front),
        "why": [
            {"choice": one.choice, "step_s": one.step_s, "memory_bytes": int(one.memory_bytes), "parts_s": one.parts_s}
            for one in rivals(found)
        ],
    }


def _entries(some: Sequence[Candidate]) -> list[dict[str, Any]]:
    return [
        {
            "step_s": one.step_s,
            "memory_bytes": int(one.memory_bytes),
            "parts_s": one.prediction.parts,
            **axes(one.plan),
            "recompute_layers": one.plan.recompute_layers,
            "layers": list(one.plan.cuts),
        }
        for one in some
    ]


def _lines(found: Found, best: Answer, document: dict[str, Any], *, explained: bool) -> Iterator[str]:
    """The best in a sentence and those after it; with `explained` why it wins and what else there is."""
    speed = f"{best.tokens_per_s:,.0f} tokens/s on each accelerator, {best.mfu:.1%} of its peak (MFU)"
    yield f"The fastest step takes {format_ns(1e9 * best.step_s)} with {best.plan.degrees}: {speed}."
    yield f"Of {found.tried:,} candidates {found.fitting:,} fit; {found.simulated:,} were simulated."
    if "network_usd" in document:
        yield f"The network costs ${document['network_usd']:,}, for any of them."
    yield "\n" + _plans("", found.best).text(120)
    yield f"\nTo play the fastest with the engine: {document['predict']}"
    if not explained:
        yield "--explain says why the winner wins, and the fastest at each memory."
        return
    yield from ("", *_reasons(rivals(found)), "", _front(found))
    low, high = document["interval_s"]
    yield f"\nThe best takes {low:.3f} to {high:.3f} s, if it is as near as nine in ten measured steps are."
    told = ", ".join(f"{one['constant']} {one['elasticity']:+.2f}" for one in document["sensitivities"])
    yield f"It depends most on (change of time per change of constant): {told}."


_PLAN = ("tp", "pp", "cp", "ep", "dp", ("virtual_stages", "chunks"), ("micro_batch", "micro"), "recompute", "zero")


def _front(found: Found) -> str:
    return _plans("Fastest at each memory", found.front).text(120)


def _plans(title: str, some: Sequence[Candidate]) -> Table:
    partly = [("recompute_layers", "layers")] * any(one.plan.recompute_layers for one in some)
    groups = [("shard", "shard")] * any(one.plan.shard for one in some)
    uneven = [("cuts", "layers of parts")] * any(one.plan.cuts for one in some)
    last = *groups, ("schedule_name", "schedule"), *uneven
    shown = columns("step_ns", "memory_bytes", *_PLAN[:-1], *partly, "zero", *last)
    rows = [(one.step_s * 1e9, one.memory_bytes, *(_cell(one.plan, each.key) for each in shown[2:])) for one in some]
    return Table(title, shown, rows)


def _cell(plan: Plan, key: str) -> int | str:
    """A choice; 0 ranks that share parameters are all of them; layers of parts as runs of equal ones."""
    if key == "shard":
        return plan.shard or "all"
    if key != "cuts":
        value: int | str = getattr(plan, key)
        return value
    runs = [(layers, len([*some])) for layers, some in groupby(plan.cuts)]
    return " ".join(f"{many}x{layers}" if many > 1 else str(layers) for layers, many in runs) or "even"


def _reasons(others: Sequence[Rival]) -> list[str]:
    """Seconds and gigabytes that the best with another choice takes more; parts that never differ are left out."""
    if not others:
        return ["no other choice fits"]
    limit_s = SLOWEST * (others[0].candidate.step_s - others[0].step_s)
    slow = [one.choice for one in others if one.candidate.step_s > limit_s]
    others = [one for one in others if one.candidate.step_s <= limit_s] or others
    names = [name for name in others[0].parts_s if any(abs(one.parts_s[name]) >= _SHOWN_S for one in others)]
    rows = [(one.choice, one.step_s, *(one.parts_s[name] for name in names), one.memory_bytes) for one in others]
    figures = [(name, name.removesuffix("_parallel"), "+.3f") for name in ("step", *names)]
    shown = columns(("choice", ""), *figures, ("memory", "memory", "+bytes"))
    title = "Why the winner wins: seconds and memory that the best with another choice takes more"
    lines = [Table(title, shown, rows).text(WIDE)]
    return [*lines, f"More than {SLOWEST:g} times as slow: {', '.join(slow)}."] if slow else lines


_SHOWN_S, WIDE = 0.0005, 400
