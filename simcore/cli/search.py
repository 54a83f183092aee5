"""simcore search: the best parallelisation of a model on a cluster, under memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simcore.cli.command import Target, emit, option, pictures, verb

if TYPE_CHECKING:
    from simcore.cost.search import Candidate, Found, Rival, Study

__all__ = ["command"]


@verb(short_help="Find the best parallelisation of a model on a cluster.")
@click.argument("study")
@option("--top", default=10, show_default=True, type=click.IntRange(min=1), help="How many to show.")
@option("--explain", is_flag=True, help="The best step's interval and the constants it follows most.")
@option("--plot", type=Target(pictures), metavar="FILE", help="Picture of time against memory (.png .svg .pdf).")
def command(study: str, top: int, explain: bool, plot: str | None) -> None:
    """Find the fastest way to run a model that fits: degrees, chunks, micro-batch, recomputation, ZeRO level.

    \b
    simcore search study.yaml --top 5 --explain
    """
    from simcore.cost.search import search
    from simcore.cost.study import read_study
    from simcore.errors import InputError

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
        from simcore.cost.picture import front_figure
        from simcore.report.plots import save

        job = f"{asked.model.name} on {asked.accelerators:,} x {asked.cluster.accelerator}"
        save(front_figure(found, job), Path(plot))
    explained = _explained(found.best[0], asked) if explain else {}
    emit(_document(found) | explained, lambda: "\n".join([*_lines(found), *_explained_lines(explained)]))


def _too_large(found: Found, asked: Study) -> str:
    """How many candidates there were, and how far the smallest is from fitting."""
    if not found.tried:
        return f"no degrees that divide {asked.accelerators} accelerators and {asked.plan.global_batch} sequences"
    needs, has = found.least_bytes / 1e9, asked.limit_bytes / 1e9
    return f"{found.tried} candidates; the smallest needs {needs:.1f} GB, {has:.1f} GB are to be had"


def _explained(best: Candidate, asked: Study) -> dict[str, Any]:
    """How sure the best step is, from measured steps on the system, and what it follows."""
    from simcore.cost.margins import interval, kind_of, margin_of
    from simcore.cost.predict import predict
    from simcore.cost.sensitivity import of_cluster

    followed = of_cluster(asked.cluster, lambda moved: predict(asked.model, best.plan, moved).step_s)
    found = [{"constant": one.constant, "elasticity": one.elasticity} for one in followed[:3]]
    margin = margin_of(kind_of(asked.model, best.plan, asked.cluster))
    return {"interval_s": list(interval(best.step_s, margin.share)), "sensitivities": found}


def _explained_lines(explained: dict[str, Any]) -> Iterator[str]:
    if explained:
        low, high = explained["interval_s"]
        yield f"\nthe best takes {low:.3f} to {high:.3f} s, if it is as near as nine in ten measured steps"
        told = ", ".join(f"{one['constant']} {one['elasticity']:+.2f}" for one in explained["sensitivities"])
        yield f"follows most (change of time per change of constant): {told}"


def _document(found: Found) -> dict[str, Any]:
    from simcore.cost.search import rivals

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
    from simcore.cost.search import axes

    return [
        {
            "step_s": one.step_s,
            "memory_bytes": int(one.memory_bytes),
            "parts_s": one.prediction.parts if one.prediction else {},
            **axes(one.plan),
        }
        for one in some
    ]


def _lines(found: Found) -> list[str]:
    from simcore.cost.search import rivals

    head = f"{'step':>9} {'memory':>9}   tp  pp   cp   ep   dp chunks micro  recompute zero  schedule"
    lines = [f"{found.tried} candidates, {found.fitting} fit, {found.simulated} simulated", head]
    lines += map(_line, found.best)
    return [*lines, "", *_reasons(rivals(found)), "", "fastest at each memory:", head, *map(_line, found.front)]


def _line(one: Candidate) -> str:
    plan = one.plan
    figures = (
        f"{one.step_s:8.3f}s {one.memory_bytes / 1e9:6.1f} GB  {plan.tp:>3} {plan.pp:>3} {plan.cp:>4} {plan.ep:>4}"
    )
    chosen = f"{plan.dp:>4} {plan.virtual_stages:>6} {plan.micro_batch:>5} {plan.recompute:>10} {plan.zero:>4}"
    return f"{figures} {chosen}  {plan.schedule_name}"


_SHORT = {"tensor_parallel": "tensor", "context_parallel": "context", "expert_parallel": "expert"}
_SHORT |= {"pipeline_parallel": "pipeline"}


def _reasons(others: Sequence[Rival]) -> list[str]:
    """Seconds and gigabytes that the best with another choice takes more; parts that never differ are left out."""
    from simcore.cost.search import SLOWEST

    if not others:
        return ["no other choice fits"]
    limit_s = SLOWEST * (others[0].candidate.step_s - others[0].step_s)
    slow = [one.choice for one in others if one.candidate.step_s > limit_s]
    others = [one for one in others if one.candidate.step_s <= limit_s] or others
    names = [name for name in others[0].parts_s if any(abs(one.parts_s[name]) >= _SHOWN_S for one in others)]
    width = max(len(one.choice) for one in others)
    head = " ".join(f"{_SHORT.get(name, name):>9}" for name in ("step", *names))
    lines = ["why the winner wins: what the best with another choice takes more", f"{'':{width}} {head}    memory"]
    for one in others:
        figures = " ".join(f"{seconds:+8.3f}s" for seconds in (one.step_s, *(one.parts_s[name] for name in names)))
        lines.append(f"{one.choice:{width}} {figures} {one.memory_bytes / 1e9:+6.1f} GB")
    return [*lines, f"more than {SLOWEST:g} times as slow: {', '.join(slow)}"] if slow else lines


_SHOWN_S = 0.0005
