"""`simcore generate collective|synthetic|schedule`: micro-benchmarks, traces like others, who sends what to whom."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simcore import files
from simcore.cli.command import emit, warn
from simcore.cli.kinds import forced
from simcore.errors import InputError, wrong
from simcore.generate import collectives
from simcore.generate.synthetic import learn, learnt, likeness, merge, project, sample, together
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.load import load
from simcore.network.topology.model import Topology
from simcore.report.table import Table, columns
from simcore.system.collectives import ROOTED, PlanOptions, algorithms, traits_of
from simcore.system.collectives.synthesised import wires
from simcore.system.plans.schedule import to_text
from simcore.units import format_bytes, format_ns
from simcore.workload.chakra import groups, reader, writer
from simcore.workload.model import CollectiveKind, GraphSet, NodeKind

MOST_DIMENSION = 31


def collective(
    kind: str | None, size: float, repeat: int, compute: float, dims: tuple[int, ...] | None, root: int, samples: bool,
    npus: int | None, output: str,
) -> None:  # fmt: skip
    """One collective on all NPUs: a micro-benchmark."""
    if samples:
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
        made = collectives.samples(npus or 2)
        files = {folder / f"{name}.{rank}.et": data for name, ranks in made.items() for rank, data in enumerate(ranks)}
    else:
        if kind is None:
            raise InputError.at("--kind", "which collective?", expected=", ".join(map(str, CollectiveKind)))
        if not size:
            warn("a collective of 0 bytes sends nothing and takes no time")
        _check_root(kind, root, npus)
        if dims and max(dims) > MOST_DIMENSION:
            raise wrong("--dims", f"dimensions up to {MOST_DIMENSION}", ",".join(map(str, dims)))
        involved = [dimension in dims for dimension in range(max(dims) + 1)] if dims else []
        data = collectives.collective(
            CollectiveKind(kind), round(size), repeat=repeat, compute_ns=round(compute), involved=involved, root=root
        )
        base = output.removesuffix(".et")
        files = {Path(f"{base}.{rank}.et"): data for rank in range(npus or 0)} or {Path(f"{base}.et"): data}
    writer.write_files(files, force=forced())


def _check_root(kind: str, root: int, ranks: int | None) -> None:
    """InputError where a collective has no root, or none of its ranks (None: nobody knows how many) is that."""
    if root and kind not in ROOTED:
        raise InputError.at("--root", "has no effect here", expected=f"--kind {', '.join(ROOTED)}")
    if ranks and root >= ranks:
        raise InputError.at("--root", "there is no such rank", expected=f"0 to {ranks - 1}", found=str(root))


def synthetic(sources: tuple[str, ...], npus: int | None, length: int | None, seed: int, output: str) -> None:
    """Traces statistically similar to given ones, without their names and sizes; what was learnt, and how alike."""
    counts = [*map(reader.count_ranks, sources)]
    masters = together([merge(_graphs(*source)) for source in zip(sources, counts, strict=True)], sources)
    model = learn(*masters, path=sources[0])
    made = sample(model, length=length or 0, seed=seed)
    files = {Path(f"{output}.{rank}.et"): data for rank, data in enumerate(project(made, npus or 0))}
    writer.write_files(files, force=forced())
    scores = [{"source": source} | likeness(each, made) for source, each in zip(sources, masters, strict=True)]
    known = learnt(model, masters)
    emit({"schema": "simcore.synthesis/1", "learnt": known, "sources": scores}, lambda: _synthesis(known, scores))


def _graphs(source: str, npus: int) -> GraphSet:
    """The traces of a set, with the groups that stand beside them; only their collectives are learnt."""
    read = reader.read_graphs(source, npus, groups.of_set(source, npus))
    if sent := sum(int((read.graphs[each].kind == NodeKind.SEND).sum()) for each in read.graph_of_rank.tolist()):
        warn(f"{source}: {sent} messages from NPU to NPU are left out; only collectives are learnt")
    return read


def _synthesis(known: dict[str, Any], scores: list[dict[str, Any]]) -> str:
    """What was learnt and how alike the sources are, as text."""
    rows = [
        (kind, found["share"], _mixture(found["log2_bytes"], format_bytes)) for kind, found in known["kinds"].items()
    ]
    rows.append(("computation between", 1 - known["no_gap"], _mixture(known["log2_gap_ns"], format_ns)))
    alike = [
        (score["source"], name, row["distance"], row["level"])
        for score in scores
        for name, row in [*((f"size of {kind}", row) for kind, row in score["sizes"].items()), ("gap", score["gaps"])]
    ]
    kinds = [
        (score["source"], "kinds", *(score["kinds"][key] for key in ("chi_square_per_degree", "level")))
        for score in scores
    ]
    sets = f"{len(scores)} set{'s' * (len(scores) > 1)} of {known['npus']} ranks"
    said = f"learnt from {sets}, {known['groups']} groups, {known['states']} states"
    lines = [said, Table("", columns("collective", "share", "sizes: weight x median (spread)"), rows).text(120)]
    shown = columns("set", "of", ("distance", "distance (KS), chi-square", ".3f"), ("level", "level", ".2g"))
    return "\n".join([*lines, Table("", shown, [*alike, *kinds]).text(120)])


def _mixture(components: list[dict[str, float]], shown: Callable[[float], str]) -> str:
    """A mixture of powers of two: weights, medians and the factor that one deviation is."""
    parts = (f"{one['weight']:.0%} x {shown(2 ** one['mean'])} ({2 ** one['deviation']:.2f}x)" for one in components)
    return ", ".join(parts) or "none"


def schedule(kind: str, algorithm: str, topology: str, size: float, pieces: int, root: int, output: str) -> None:
    """Who sends which chunk to whom, checked; a system file plays it with {schedule: FILE}."""
    machine = load(topology)
    _check_root(kind, root, machine.npus)
    files.write_text(output, _plan(CollectiveKind(kind), algorithm, machine, round(size), pieces, root))


def _plan(kind: CollectiveKind, name: str, machine: Topology, size_bytes: int, pieces: int, root: int) -> str:
    """The plan of an algorithm as a file; InputError when it is none of these, cannot, or does another collective."""
    make = algorithms.get(name)
    if pieces and not traits_of(name).windowed:
        raise InputError.at("--pieces", f"has no effect on {name}")
    neighbours = partial(wires, LinkGraph(machine), np.arange(machine.npus))
    try:
        made = make(kind, machine.npus, size_bytes, PlanOptions(pieces, root=root, wires=neighbours))
        if made.transfers and not made.multicast:
            return to_text(made, kind, root)
    except ValueError as error:
        raise InputError.at("--algorithm", str(error), found=name) from error
    message = f"{name} is not made of transfers from rank to rank one by one"
    raise InputError.at("--algorithm", message, expected="binomial, chain, doubleBinaryTree, flat or synthesised")
