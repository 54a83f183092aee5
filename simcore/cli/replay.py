"""`simcore replay`: real profiler traces against their measured steps; changes are read, checked and played."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec.structs import replace

from simcore.api import load_topology
from simcore.cli.command import emit, note, option_of, warn
from simcore.cli.kinds import forced
from simcore.engine.settings import parse_straggler
from simcore.errors import InputError, wrong
from simcore.files import folder as written_folder
from simcore.files import write_all, write_text
from simcore.options import MOST_COUNT, whole
from simcore.options import number as as_number
from simcore.replay.kinds import categories
from simcore.replay.pipelines.pipeline import NUMBERS, Rebuilt, compiled, pipeline_dict, pipeline_text
from simcore.replay.run import Changes
from simcore.replay.session import Replay, replay_prepared
from simcore.replay.steps.build import Prepared
from simcore.replay.views.changed import helps
from simcore.replay.views.export import write
from simcore.replay.views.report import to_dict
from simcore.replay.views.screen import to_text
from simcore.replay.views.trial import ablations
from simcore.replay.views.workloads import to_chakra, to_workload_text, untold
from simcore.replay.whatif import changes
from simcore.replay.whatif.changes import HOST_TIMES, Edit, WhatIf, cuda_graphs, host, unsynchronised
from simcore.replay.whatif.retiming import MOST_RANKS, TITLES, Degree, Retimed
from simcore.replay.whatif.transfers import Interconnect
from simcore.report.document import encode
from simcore.system import config
from simcore.workload.host_trace import read_recorded
from simcore.workload.kineto import KinetoTrace
from simcore.workload.text import write as workload_text


def scales(values: tuple[str, ...]) -> tuple[Edit, ...]:
    """NAME=FACTOR, split at the last equals sign."""
    return tuple(_parse_scale(value) for value in values)


def _parse_scale(value: str) -> Edit:
    """Host time, perhaps on some ranks, synchronisation, a category of work, or a regular expression on names."""
    name, separator, number = value.rpartition("=")
    try:
        factor, pattern = as_number(number, 0), re.compile(name)
    except (re.error, ValueError) as error:
        raise wrong("--scale", "a regular expression and a number, gemm=0.5", value) from error
    if not (separator and name):
        raise wrong("--scale", "NAME=FACTOR with a factor of at least 0", value)
    which, at, ranks = name.partition("@")
    if which in HOST_TIMES:
        return host(which, factor, tuple(parse_straggler(f"{ranks}={number}")[0]) if at else ())
    if name == "synchronisation":
        if factor:
            raise wrong("--scale", "synchronisation=0, for a wait takes what it waits for", value)
        return unsynchronised()
    return changes.kinds(name, factor) if name in categories() else changes.scale(pattern, factor)


def fused(values: tuple[str, ...]) -> tuple[Edit, ...]:
    """Regular expressions of tasks."""
    try:
        return tuple(changes.fused(re.compile(value)) for value in values)
    except re.error as error:
        raise wrong("--fuse", f"a regular expression ({error})", " ".join(values)) from error


def stragglers(values: tuple[str, ...]) -> tuple[Edit, ...]:
    """RANKS=FACTOR, as `simcore run` takes it."""
    parsed = [parse_straggler(value) for value in values]
    return tuple(changes.straggler(tuple(ranks), factor) for ranks, factor in parsed)


def assignments(values: tuple[str, ...]) -> dict[str, int | str]:
    """NAME=VALUE, each name once."""
    found = [_assignment(value) for value in values]
    for name, same in groupby(sorted(name for name, _ in found)):
        if len(list(same)) > 1:
            raise wrong("--set", f"{name} once", " ".join(values))
    return dict(found)


CHANGES: dict[str, Callable[[int], WhatIf | Degree]] = {
    "dp": partial(Degree, "dp"),
    "tp": partial(Degree, "tp"),
    "layers": changes.layers,
    "hidden": partial(changes.width, "hidden"),
    "ffn": partial(changes.width, "ffn"),
}
# What makes a step another pipeline: it is compiled anew, and other changes with it (docs/replay.md).
PIPELINE = ("pp", "vpp", "micro_batches", "schedule")
NAMES = (*CHANGES, *PIPELINE)


def _assignment(value: str) -> tuple[str, int | str]:
    name, _, number = value.partition("=")
    if name not in NAMES:
        raise wrong("--set", f"one of {', '.join(NAMES)}, for example dp=8", value)
    if name == "schedule" and number:
        return name, number
    try:
        return name, whole(number, 1, MOST_RANKS if name in TITLES else MOST_COUNT)
    except ValueError as error:
        raise wrong("--set", f"{name}=N with {error}", value) from error


def groups(values: tuple[str, ...]) -> dict[str, re.Pattern[str]]:
    """ROLE=REGEX: which process group has the role."""
    found = {}
    for value in values:
        role, _, pattern = value.partition("=")
        if role not in ("dp", "tp") or not pattern or role in found:
            raise wrong("--group", "dp=REGEX or tp=REGEX, each once", value)
        try:
            found[role] = re.compile(pattern)
        except re.error as error:
            raise wrong("--group", f"{role}=REGEX ({error})", value) from error
    return found


Asked = SimpleNamespace
"""The options as the table of commands names them, with `changes` in place of its switches."""


def command(**given: Any) -> None:
    """Replay traces from their dependencies, and write what options ask for."""
    kept = {name: not given.pop(f"no_{name}") for name in Changes.__struct_fields__}
    emit(*_replayed(Asked(changes=Changes(**kept), **given)))


def _replayed(asked: Asked) -> tuple[dict[str, object], Callable[[], str]]:
    """The document, and what makes the text."""
    profiles, alone = read_recorded(asked.traces, asked.hosts)
    for left in alone:
        warn(f"{left.file}: no trace here is of process {left.process}; this host trace is left out")
    _check_aims(profiles, asked.scales, asked.stragglers)
    ranks = [Prepared(trace) for trace in profiles]
    if not asked.assignments.keys().isdisjoint(PIPELINE):
        return _another_pipeline(asked, ranks)
    replay = replace(replay_prepared(ranks, asked.changes, _whats(asked)), tokens=asked.tokens)
    _check_changes(replay)
    table = ablations(ranks) if asked.with_ablations else None
    advice = [] if replay.whats or asked.changes != Changes() else helps(replay)
    document = to_dict(replay, advice, table)
    if asked.output is not None:
        write(replay, encode(document), Path(asked.output), force=forced())
    if (asked.chakra or asked.text) and (lost := untold(replay)):
        warn(f"{lost} collectives are written with their recorded bytes and ranks, not with their changed times")
    if asked.chakra is not None:
        _export_chakra(replay, Path(asked.chakra))
    if asked.text is not None:
        write_text(asked.text, to_workload_text(replay))
    return document, lambda: to_text(document)


def _whats(asked: Asked) -> tuple[WhatIf, ...]:
    """What is changed, in the order in which changes are made."""
    changed = [CHANGES[name](int(number)) for name, number in asked.assignments.items()]
    degrees = [replace(one, named=asked.groups.get(one.role)) for one in changed if isinstance(one, Degree)]
    network = _interconnect(asked.topology, asked.system, "")
    recorded = _interconnect(asked.recorded_topology, asked.recorded_system, "recorded-")
    if recorded and not network:
        raise InputError.at("--recorded-topology", "a ratio has two sides", expected="--topology T, too")
    if lost := sorted(asked.groups.keys() - {degree.role for degree in degrees}):
        raise InputError.at("--group", f"the degree of {lost[0]} does not change", expected=f"--set {lost[0]}=N, too")
    retimed = (Retimed(tuple(degrees), network, recorded),) if degrees or network else ()
    others = [one for one in changed if not isinstance(one, Degree)]
    overlaps = (changes.overlap(asked.overlap),) if asked.overlap else ()
    graphs = (cuda_graphs(),) if asked.cuda_graphs else ()
    return (*others, *retimed, *overlaps, *asked.stragglers, *asked.fused, *graphs, *asked.scales)


def _interconnect(topology: str | None, system: str | None, prefix: str) -> Interconnect | None:
    """What a topology and a system file describe."""
    if topology is None and system is not None:
        raise InputError.at(f"--{prefix}system", "belongs to a topology", expected=f"--{prefix}topology T, too")
    if topology is None:
        return None
    return Interconnect(load_topology(topology), config.read(system) if system else None)


def _another_pipeline(asked: Asked, ranks: list[Prepared]) -> tuple[dict[str, object], Callable[[], str]]:
    """Compile the recorded step into a pipeline and play it."""
    for name in ("scales", "fused", "cuda_graphs", "stragglers", "overlap", "with_ablations", "groups", "chakra",
                 "output"):  # fmt: skip
        if getattr(asked, name):
            message = "does not go with another pipeline, which is a run of its own"
            hint = "--export-text writes that run's workload for simcore run"
            raise InputError.at(option_of(name), message, hint=hint)
    machine = _interconnect(asked.topology, asked.system, "")
    base = _interconnect(asked.recorded_topology, asked.recorded_system, "recorded-")
    if asked.assignments.keys() - {*NUMBERS, "schedule"} or machine is None:
        expected = f"{', '.join(NUMBERS)} and schedule" if machine else "--topology T, the machine to run on"
        message = "another pipeline is compiled from layers and played on a machine"
        raise InputError.at("--set", message, expected=expected, found=", ".join(asked.assignments))
    replay = replace(replay_prepared(ranks, asked.changes), tokens=asked.tokens)
    rebuilt = Rebuilt(replay, asked.assignments, machine, base)
    if asked.text is not None:
        write_text(asked.text, workload_text(compiled(rebuilt.recorded, rebuilt.plan)))
    document = to_dict(replay) | {"pipeline": pipeline_dict(rebuilt)}
    return document, lambda: pipeline_text(rebuilt, replay.tokens)


def _check_aims(profiles: list[KinetoTrace], scales: tuple[Edit, ...], stragglers: tuple[Edit, ...]) -> None:
    """InputError when a pattern matches no task of any trace, or a straggler is none of the ranks."""
    names = sorted({trace.names[name] for trace in profiles for name in np.unique(trace.tasks.name).tolist()})
    for pattern in (scale.pattern for scale in scales if scale.pattern):
        if not any(pattern.search(name) for name in names):
            shown = ", ".join(name[:30] for name in names[:3])
            raise InputError.at("--scale", "no task's name matches", expected=f"{shown}, ...", found=pattern.pattern)
    known = [trace.rank for trace in profiles]
    aims = [("--straggler", one.ranks) for one in stragglers] + [("--scale", one.ranks) for one in scales]
    for option, ranks in aims:
        for span in (span for span in ranks if not any(rank in span for rank in known)):
            listed, found = ", ".join(map(str, known)), f"{span[0]}" if len(span) == 1 else f"{span[0]}-{span[-1]}"
            raise InputError.at(option, "no trace is of this rank", expected=f"one of {listed}", found=found)


def _check_changes(replay: Replay) -> None:
    """InputError for a change after which every step is as it was recorded."""
    sources = dict.fromkeys(step.source for steps in replay.steps for step in steps)
    for what in replay.whats:
        if all(source.edited([what]).same(source.graph) for source in sources):
            message = f"'{what}' changes nothing: the recorded steps have none of what it changes, or have it so"
            raise InputError.at("what if", message, hint="simcore replay without it lists what would help")


def _export_chakra(replay: Replay, folder: Path) -> None:
    """Write step.RANK.et and say what the network will time."""
    exported = to_chakra(replay)
    with written_folder(folder, force=forced()) as stage:
        write_all({stage / f"step.{rank}.et": content for rank, content in exported.files.items()})
    note(
        f"{folder}: {len(exported.files)} ranks; {exported.collectives} collectives for the network to time, "
        f"{exported.kept} communication kernels with their recorded time"
    )
