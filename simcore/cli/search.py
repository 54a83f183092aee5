"""simcore search: the best parallelisation of a model on a cluster, under memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from simcore.cost.search import Candidate, Found

__all__ = ["command"]


@click.command(short_help="Find the best parallelisation of a model on a cluster.")
@click.argument("study", type=click.Path(path_type=Path))
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=1), help="How many to show.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--plot", type=click.Path(path_type=Path), help="Picture of time against memory (.png .svg .pdf).")
def command(study: Path, top: int, as_json: bool, plot: Path | None) -> None:
    """Find the fastest way to run a model that fits: degrees, chunks, micro-batch, recomputation, ZeRO level.

    \b
    simcore search study.yaml --top 5
    """
    from simcore.cost.search import search
    from simcore.cost.study import read_study
    from simcore.errors import InputError

    found = search(read_study(study), top)
    if not found.best:
        raise InputError.at(
            str(study),
            "nothing fits" if found.tried else "nothing divides evenly",
            expected="more accelerators, more memory, or wider lists of what may vary",
            found=f"{found.tried} candidates, {found.fitting} within memory",
        )
    if plot:
        from simcore.cost.picture import plot_front

        plot_front(found, plot)
    text = json.dumps(_document(found), sort_keys=True, indent=1) if as_json else "\n".join(_lines(found))
    click.echo(text)


def _document(found: Found) -> dict[str, Any]:
    from simcore.cost.search import why

    return {
        "schema": "simcore.search/1",
        "candidates": found.tried,
        "fitting": found.fitting,
        "simulated": found.simulated,
        "best": _entries(found.best),
        "front": _entries(found.front),
        "why": why(found.best),
    }


def _entries(some: Sequence[Candidate]) -> list[dict[str, Any]]:
    return [
        {
            "step_s": one.step_s,
            "memory_bytes": int(one.memory_bytes),
            "parts_s": one.prediction.parts if one.prediction else {},
            "tp": one.job.tp,
            "pp": one.job.pp,
            "dp": one.job.dp,
            "chunks": one.job.chunks,
            "micro_batch": one.job.micro_batch,
            "recompute": one.job.recompute,
            "zero": one.job.zero,
            "schedule": one.job.plan.name,
        }
        for one in some
    ]


def _lines(found: Found) -> list[str]:
    from simcore.cost.search import why

    head = f"{'step':>9} {'memory':>9}   tp  pp   dp chunks micro  recompute zero  schedule"
    lines = [f"{found.tried} candidates, {found.fitting} fit, {found.simulated} simulated", head]
    lines += map(_line, found.best)
    reasons = ", ".join(why(found.best))
    lines += [f"against the second, the first differs by: {reasons}"] if reasons else []
    return [*lines, "", "fastest at each memory (of those simulated):", *map(_line, found.front)]


def _line(one: Candidate) -> str:
    job = one.job
    figures = (
        f"{one.step_s:8.3f}s {one.memory_bytes / 1e9:6.1f} GB  {job.tp:>3} {job.pp:>3} {job.dp:>4} {job.chunks:>6}"
    )
    return f"{figures} {job.micro_batch:>5} {job.recompute:>10} {job.zero:>4}  {job.plan.name}"
