"""Several jobs on one machine: where their NPUs are, and all of their graphs as one graph for every NPU."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from simcore import library
from simcore.documents import Node, read
from simcore.errors import InputError, Location, Problems, closest
from simcore.files import sha256
from simcore.registry import Registry
from simcore.units import parse_ns
from simcore.workload import text
from simcore.workload.chakra import groups, reader
from simcore.workload.chakra.convert.native import convert
from simcore.workload.model import ALL_DIMENSIONS, NODE_COLUMNS, Graph, GraphSet, NodeKind, Workload

MOST_NPUS, MOST_REPEATS, MOST_TRIALS = 1 << 16, 1000, 1000
Program = Callable[[Path], Workload]
Policy = Callable[[Node | None], str]
"""The entry `system` of a file of jobs, None where there is none -> the policy by which collectives are scheduled."""
EXPLICIT = "EXPLICIT"
"""The policy of loops that have become graphs: each collective has the priority which the asked policy gives it."""
_EMPTY = GraphSet((), np.zeros(0, np.int32))


class Job(Struct, frozen=True):
    """A workload that runs `repeats` times from `start_ns` on; `place` names a rule of `PLACES`, or the NPUs."""

    name: str
    graphs: GraphSet
    npus: int
    start_ns: int = 0
    repeats: int = 1
    place: str | tuple[int, ...] = "packed"
    location: Location | str = "jobs"
    sha256: str = ""


class JobFile(Struct, frozen=True):
    """What a file of jobs says; of `trials` random placements and one by each rule the best is looked for."""

    jobs: tuple[Job, ...]
    topology: Node | None = None
    system: Node | None = None
    network: Node | None = None
    seed: int = 0
    trials: int = 0


Places = Callable[[Sequence[int], int, int, random.Random], list[int]]
"""(Free NPUs in order, how many are wanted, size of dimension 0, source of randomness) -> those that are taken."""
PLACES: Registry[Places] = Registry("placement")


PLACES.register("packed")(lambda free, wanted, inner, source: list(free[:wanted]))
# As far apart as they come.
PLACES.register("spread")(lambda free, wanted, inner, source: [free[i * len(free) // wanted] for i in range(wanted)])
# All with the same place in dimension 0, then those of the next place.
PLACES.register("rail")(lambda free, wanted, inner, source: sorted(free, key=lambda npu: (npu % inner, npu))[:wanted])
PLACES.register("random")(lambda free, wanted, inner, source: source.sample(free, wanted))


def placed(jobs: Sequence[Job], dims: Sequence[int], seed: int, rule: str = "") -> list[tuple[int, ...]]:
    """The NPUs of every job in the order of its ranks, by `rule` if given; InputError if too few are free.

    NPUs that a job names are its own before any rule gives others away.
    """
    npus, source = int(np.prod(dims)), random.Random(seed)  # noqa: S311 - no secret
    taken: set[int] = set()
    for job in jobs:
        named = job.place if not isinstance(job.place, str) else ()
        wrong = [npu for npu in named if npu in taken or not 0 <= npu < npus]
        if wrong:
            message = f"{job.name} names an NPU that does not exist or is another's"
            raise InputError.at(job.location, message, expected=f"NPUs 0 to {npus - 1}, each once", found=str(wrong[0]))
        taken |= set(named)
    found = []
    for job in jobs:
        own = job.place
        if isinstance(own, str):
            free = [npu for npu in range(npus) if npu not in taken]
            if job.npus > len(free):
                message = f"{job.name} wants {job.npus} NPUs"
                raise InputError.at(
                    job.location, message, expected=f"at most {len(free)} that are free", found=str(job.npus)
                )
            own = tuple(PLACES.get(rule or own)(free, job.npus, dims[0], source))
            taken |= set(own)
        found.append(own)
    return found


def merged(jobs: Sequence[Job], places: Sequence[Sequence[int]], npus: int) -> GraphSet:
    """The jobs as one graph for every NPU of the machine; NPUs without a job do nothing."""
    graphs = [Graph.of()]
    graph_of_rank = np.zeros(npus, np.int32)
    groups: dict[str, tuple[int, ...]] = {}
    start_ns: dict[int, int] = {}
    for job, place in zip(jobs, places, strict=True):
        at = np.array(place)
        graph_of_rank[at] = len(graphs) + job.graphs.graph_of_rank
        for graph in job.graphs.graphs:  # with the machine's NPUs for its ranks, and groups of its own
            names = tuple(f"{job.name}/{name}" for name in graph.group_names)
            peer = np.where(graph.peer >= 0, at[np.clip(graph.peer, 0, len(at) - 1)], -1).astype(np.int32)
            dims = np.full(len(graph), ALL_DIMENSIONS, np.int64)
            graphs.append(replace(graph, group_names=names, peer=peer, dims=dims))
        start_ns |= dict.fromkeys(place, job.start_ns)
        groups[f"{job.name}/"] = tuple(place)
        groups |= {f"{job.name}/{name}": tuple(at[list(ranks)].tolist()) for name, ranks in job.graphs.groups.items()}
    warnings = tuple(dict.fromkeys(warning for job in jobs for warning in job.graphs.warnings))
    return GraphSet(tuple(graphs), graph_of_rank, groups, "jobs", warnings, start_ns)


def _chain(parts: Sequence[Graph]) -> Graph:
    """Graphs one after the other: what waits for nothing waits for all that nobody of the part before waits for."""
    starts = np.cumsum([0, *(len(part) for part in parts)])
    owners, deps = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, part in enumerate(parts):
        counts, first = np.diff(part.dep_offsets), starts[number]
        owners.append(first + np.repeat(np.arange(len(part)), counts))
        deps.append(first + part.deps.astype(np.int64))
        if number:
            roots, before = first + np.flatnonzero(counts == 0), parts[number - 1]
            sinks = starts[number - 1] + np.setdiff1d(np.arange(len(before)), before.deps)
            owners.append(np.repeat(roots, len(sinks)))
            deps.append(np.tile(sinks, len(roots)))
    owner, dep = np.concatenate(owners), np.concatenate(deps)
    order = np.lexsort((dep, owner))
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in NODE_COLUMNS}
    chakra_ns = [part.duration_ns if part.chakra_ns is None else part.chakra_ns for part in parts]
    columns["chakra_ns"] = np.concatenate(chakra_ns)
    return replace(
        parts[-1],
        **columns | {"node_id": np.arange(starts[-1])},
        dep_offsets=np.searchsorted(owner[order], np.arange(starts[-1] + 1)),
        deps=dep[order].astype(np.int32),
        names=tuple(name for part in parts for name in part.names),
    )


def _gate() -> Graph:
    """One node that takes no time; all of a part waits for it."""
    return Graph.of({"name": "start", "kind": NodeKind.COMPUTE, "delays": True, "on_cpu": True})


def named_by(path: Path) -> list[tuple[str, str]]:
    """Role and name of every input that a YAML file of jobs names; none of another file."""
    root = read(path, Problems()) if path.suffix in {".yaml", ".yml"} and path.is_file() else None
    if root is None or "jobs" not in root:
        return []
    named = [(key, root[key]) for key in ("topology", "system") if key in root]
    named += [("workload", job["workload"]) for job in root["jobs"].items if "workload" in job]
    return [(role, node.path()) for role, node in named]


def read_jobs(path: str | Path, program: Program = text.read, policy_of: Policy = lambda _: "LIFO") -> JobFile:
    """A file of jobs, whose workloads of rows `program` reads; InputError with every fault and its place."""
    with Problems() as problems:
        root = read(path, problems)
        root.keys(required=("jobs",), optional=("topology", "system", "network", "seed", "search"))
        entries = root["jobs"].sequence() if "jobs" in root else []
        named = {key: root[key] for key in ("topology", "system", "network") if key in root}
        for node in named.values():
            node.text()
        policy = policy_of(named.get("system"))
        jobs = [_job(node, f"job{number}", program, policy) for number, node in enumerate(entries)]
        names = [job.name for job in jobs]
        for number, node in enumerate(entries):
            if names[number] in names[:number]:
                node.problem("every job needs a name of its own", "a name that no other job has", names[number])
        if not problems.found and not jobs:
            root["jobs"].problem("there is no job", "one job or more", "none")
        seed = root["seed"].integer() if "seed" in root else 0
        trials = root["search"].integer(0, MOST_TRIALS) if "search" in root else 0
        if trials and not any(isinstance(job.place, str) for job in jobs):
            root["search"].problem("every job names its NPUs: there is nothing to search", "a rule for some job")
    return JobFile(tuple(jobs), **named, seed=seed, trials=trials)


def _job(node: Node, name: str, program: Program, policy: str) -> Job:
    node.keys(required=("workload",), optional=("name", "npus", "start", "repeats", "place"))
    name = node["name"].text() if "name" in node else name
    start = round(node["start"].quantity(parse_ns)) if "start" in node else 0
    repeats = node["repeats"].integer(1, MOST_REPEATS) if "repeats" in node else 1
    place: str | tuple[int, ...] = "packed"
    if "place" in node:  # a rule, or NPUs one by one
        where = node["place"]
        place = (
            tuple(item.integer() for item in where.sequence()) if isinstance(where.value, list) else str(where.value)
        )
        if isinstance(place, str) and place not in PLACES:
            where.problem("no such placement", f"a list of NPUs, or {closest(place, PLACES)}")
    npus = node["npus"].integer(1, MOST_NPUS) if "npus" in node else 0 if isinstance(place, str) else len(place)
    if not npus:
        node.problem(f"{name} does not say how many NPUs it has", "npus: 8, or place: with a list of NPUs", "none")
    if not isinstance(place, str) and (len(place) != npus or len({*place}) < npus):
        node["place"].problem("not the NPUs of the job", f"{npus} NPUs, each once", f"{len({*place})} different ones")
    if node.problems.found or "workload" not in node:
        return Job(name, _EMPTY, npus)
    graphs, files = _graphs(node["workload"], npus, repeats, program, policy)
    told = node["npus" if isinstance(place, str) else "place"]
    return Job(name, graphs, npus, start, repeats, place, told.location, sha256(*files))


def _graphs(node: Node, npus: int, repeats: int, program: Program, policy: str) -> tuple[GraphSet, list[str]]:
    """The graphs of the loop of a workload of rows, or of traces, run so many times; the files that say so."""
    path = node.meant(lambda _: library.resolve(node.path(), "workloads"))
    if not library.is_program(path):
        found = node.meant(lambda _: reader.read_graphs(str(path), npus, groups.of_set(str(path), npus)))
        for graph in found.graphs:
            if (graph.dims != ALL_DIMENSIONS).any():
                node.problem("its collectives name dimensions of a machine of its own", "groups, or all NPUs")
        times = range(repeats - 1)  # each after all of the time before
        parts = ([graph, *(part for _ in times for part in (_gate(), graph))] for graph in found.graphs)
        return replace(found, graphs=tuple(map(_chain, parts))), [graph.path for graph in found.graphs]
    workload = node.meant(lambda _: program(path))
    said, warnings = workload.parallelism.all_gpus, workload.warnings
    if said not in (0, npus):
        warnings += (f"the header of {path.name} says {said:,} GPUs and the job has {npus:,} NPUs: it runs on those",)
    given = "LIFO" if policy == EXPLICIT else policy  # rows have no priorities of their own
    traces = node.meant(lambda _: convert(workload, (npus,), repeats, policy=given))
    made = reader.of_ranks(traces, path.name, warnings)
    return replace(made, graphs=tuple(replace(graph, policy=EXPLICIT) for graph in made.graphs)), [str(path)]
