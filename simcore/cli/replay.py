"""simcore replay: real profiler traces against their measured steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Literal

import click
import numpy as np

from simcore.api import load_topology
from simcore.engine.settings import parse_straggler
from simcore.errors import InputError
from simcore.replay.build import prepare
from simcore.replay.kinds import categories
from simcore.replay.run import Changes
from simcore.replay.session import Replay, replay_prepared
from simcore.replay.views.ablation import ablations
from simcore.replay.views.chakra import to_chakra
from simcore.replay.views.export import write
from simcore.replay.views.helps import helps
from simcore.replay.views.report import to_dict
from simcore.replay.views.screen import to_text
from simcore.replay.views.text import to_workload_text
from simcore.replay.whatif.changes import Fused, Kinds, Layers, Overlap, Retimed, Scale, Straggler, WhatIf, Width
from simcore.replay.whatif.degrees import Degree
from simcore.replay.whatif.host import HOST_TIMES, CudaGraphs, Host, Unsynchronised
from simcore.replay.whatif.interconnect import Interconnect
from simcore.report.document import encode
from simcore.system import config
from simcore.workload.chakra.writer import write_files
from simcore.workload.host_trace import read_recorded
from simcore.workload.kineto import KinetoTrace

__all__ = ["command"]

ASSIGNMENT = re.compile(r"[a-z_]+=[\w-]+")


def _scale(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[WhatIf, ...]:
    """NAME=FACTOR, split at the last equals sign."""
    return tuple(_parse_scale(value) for value in values)


def _parse_scale(value: str) -> WhatIf:
    """Host time, perhaps on some ranks, synchronisation, a category of work, or a regular expression on names."""
    name, separator, number = value.rpartition("=")
    try:
        factor, pattern = float(number), re.compile(name)
    except (re.error, ValueError) as error:
        raise click.BadParameter(f"expected NAME=FACTOR, for example 'gemm=0.5', found {value!r}: {error}") from error
    if not (separator and name and 0 <= factor < float("inf")):
        raise click.BadParameter(f"expected NAME=FACTOR with a factor of at least 0, found {value!r}")
    which, at, ranks = name.partition("@")
    if which in HOST_TIMES:
        return Host(which, factor, tuple(parse_straggler(f"{ranks}={number}")[0]) if at else ())
    if name == "synchronisation":
        if factor:
            raise click.BadParameter(f"a wait takes what it waits for; expected synchronisation=0, found {value!r}")
        return Unsynchronised()
    return Kinds(name, factor) if name in categories() else Scale(pattern, factor)


def _fuse(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[Fused, ...]:
    try:
        return tuple(Fused(re.compile(value)) for value in values)
    except re.error as error:
        raise click.BadParameter(f"expected a regular expression: {error}") from error


def _straggler(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[Straggler, ...]:
    """RANKS=FACTOR, as `simcore run` takes it."""
    parsed = [parse_straggler(value) for value in values]
    return tuple(Straggler(tuple(ranks), factor) for ranks, factor in parsed)


def _set(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, int | str]:
    """NAME=VALUE, each name once."""
    found = [_assignment(value) for value in values]
    for name, same in groupby(sorted(name for name, _ in found)):
        if len(list(same)) > 1:
            raise click.BadParameter(f"{name} is set more than once: {' '.join(values)}")
    return dict(found)


CHANGES: dict[str, Callable[[int], WhatIf | Degree]] = {
    "dp": partial(Degree, "dp"),
    "tp": partial(Degree, "tp"),
    "layers": Layers,
    "hidden": partial(Width, "hidden"),
    "ffn": partial(Width, "ffn"),
}
# What makes a step another pipeline: it is compiled anew, and other changes with it (docs/replay.md).
PIPELINE = ("pp", "vpp", "micro_batches", "schedule")
NAMES = (*CHANGES, *PIPELINE)


def _assignment(value: str) -> tuple[str, int | str]:
    name, _, number = value.partition("=")
    if name not in NAMES:
        raise click.BadParameter(f"expected one of {', '.join(NAMES)}, for example dp=8, found {value!r}")
    if name == "schedule" and number:
        return name, number
    if not (number.isdecimal() and int(number) > 0):
        raise click.BadParameter(f"expected {name}=N with a whole number of at least 1, found {value!r}")
    return name, int(number)


def _group(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, re.Pattern[str]]:
    """ROLE=REGEX: which process group has the role."""
    found = {}
    for value in values:
        role, _, pattern = value.partition("=")
        if role not in ("dp", "tp") or not pattern or role in found:
            raise click.BadParameter(f"expected dp=REGEX or tp=REGEX, each once, found {value!r}")
        try:
            found[role] = re.compile(pattern)
        except re.error as error:
            raise click.BadParameter(f"expected {role}=REGEX, found {value!r}: {error}") from error
    return found


class _Assignments(click.Command):
    """A command whose --set takes several assignments at once."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put --set before every further NAME=VALUE behind one that is no file."""
        spread: list[str] = []
        for word in args:
            assigns = ASSIGNMENT.fullmatch(word) and not Path(word).exists()
            follows = assigns and len(spread) > 1 and spread[-2] == "--set"
            spread += ["--set", word] if follows else [word]
        return super().parse_args(ctx, spread)


@click.command(cls=_Assignments)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...", type=click.Path())
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ET",
    type=click.Path(),
    help="PyTorch's host execution trace of the same run; found by itself among TRACE.",
)
@click.option("--no-interstream", is_flag=True, help="Leave out waits between streams.")
@click.option("--no-sync", is_flag=True, help="Leave out waits of the host for the device, the launch queue included.")
@click.option("--no-gaps", is_flag=True, help="Leave out host time in which nothing was recorded.")
@click.option("--no-coupling", is_flag=True, help="Let no rank wait for another one in a collective.")
@click.option("--no-residual", is_flag=True, help="Leave out delays that no dependency explains.")
@click.option(
    "--scale",
    "scales",
    multiple=True,
    callback=_scale,
    metavar="NAME=FACTOR",
    help="What if: durations of tasks by name (a regular expression; 0 removes them and their launches) or category "
    f"({', '.join(categories())}), of the host ({', '.join(HOST_TIMES)}; host@0-3=2 on some ranks), synchronisation=0.",
)
@click.option(
    "--fuse", "fused", multiple=True, callback=_fuse, metavar="REGEX", help="What if: neighbours as one task."
)
@click.option("--cuda-graphs", is_flag=True, help="What if: one launch in place of many.")
@click.option(
    "--straggler",
    "stragglers",
    multiple=True,
    callback=_straggler,
    metavar="RANKS=FACTOR",
    help="What if: slower ranks.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    callback=_set,
    metavar="NAME=VALUE",
    help="What if: other data or tensor parallel degree (dp, tp), number of layers, hidden or feed-forward size (ffn); "
    "with --topology another pipeline: pp, vpp, micro_batches, schedule.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    callback=_group,
    metavar="ROLE=REGEX",
    help="Which process group is data or tensor parallel (dp, tp), by its description or ranks.",
)
@click.option("--topology", metavar="T", help="What if: the interconnect of a topology file.")
@click.option("--system", metavar="S", help="System file of that interconnect.")
@click.option("--recorded-topology", metavar="T", help="The interconnect of the recording; times change by the ratio.")
@click.option("--recorded-system", metavar="S", help="System file of the recorded interconnect.")
@click.option(
    "--overlap",
    type=click.Choice(["off", "full"]),
    help="What if: communication never, or wherever streams allow it, beside computation.",
)
@click.option(
    "--tokens", metavar="N", type=click.IntRange(0), default=0, help="Tokens of a recorded step: tokens/s are told."
)
@click.option("--ablations", "with_ablations", is_flag=True, help="The error without each kind of dependency.")
@click.option(
    "--export-chakra",
    "chakra",
    metavar="DIR",
    type=click.Path(),
    help="Write the step as DIR/step.RANK.et for simcore run.",
)
@click.option("--export-text", "text", metavar="FILE", type=click.Path(), help="Write the step as a workload text.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "-o", "--output", metavar="DIR", type=click.Path(), help="Write replay.json, timeline.png, timeline.json."
)
@click.option("--force", is_flag=True, help="Overwrite files in DIR.")
def command(
    traces: tuple[str, ...],
    hosts: tuple[str, ...],
    no_interstream: bool,
    no_sync: bool,
    no_gaps: bool,
    no_coupling: bool,
    no_residual: bool,
    scales: tuple[WhatIf, ...],
    fused: tuple[Fused, ...],
    cuda_graphs: bool,
    stragglers: tuple[Straggler, ...],
    assignments: dict[str, int | str],
    groups: dict[str, re.Pattern[str]],
    topology: str | None,
    system: str | None,
    recorded_topology: str | None,
    recorded_system: str | None,
    overlap: Literal["off", "full"] | None,
    tokens: int,
    with_ablations: bool,
    chakra: str | None,
    text: str | None,
    as_json: bool,
    output: str | None,
    force: bool,
) -> None:
    """Replay PyTorch profiler traces from their dependencies and compare with the measured steps.

    TRACE is a Kineto file (.json, .json.gz), an archive or a folder of the ranks of one job; several are ranks too.

    \b
    simcore replay rank0.json.gz rank1.json.gz
    simcore replay kineto.json.gz --host execution_trace.json.gz
    simcore replay traces/ --scale 'gemm=0.5' --no-residual
    simcore replay traces/ --straggler 0=1.5 -o replayed/
    simcore replay traces/ --set dp=8 hidden=8192 --topology cluster.yml
    simcore replay traces/ --set pp=4 schedule=zb-h1 --topology cluster.yml
    """
    changes = Changes(
        interstream=not no_interstream,
        sync=not no_sync,
        gaps=not no_gaps,
        coupling=not no_coupling,
        residual=not no_residual,
    )
    overlaps = (Overlap(overlap),) if overlap else ()
    hosts_less: tuple[WhatIf, ...] = (*fused, *((CudaGraphs(),) if cuda_graphs else ()))
    profiles, alone = read_recorded(traces, hosts)
    for host in alone:
        click.echo(f"{host.file}: no trace here is of process {host.process}; this host trace is left out", err=True)
    _check_aims(profiles, scales, stragglers)
    ranks = [prepare(trace) for trace in profiles]
    if not assignments.keys().isdisjoint(PIPELINE):
        given = {
            "--scale": scales,
            "--fuse": fused,
            "--cuda-graphs": cuda_graphs,
            "--straggler": stragglers,
            "--overlap": overlap,
            "--ablations": with_ablations,
        }
        _refuse(given | {"--group": groups, "--export-chakra": chakra, "-o": output})
        files = topology, system, recorded_topology, recorded_system
        _another_pipeline(
            replace(replay_prepared(ranks, changes), tokens=tokens), assignments, files, text, as_json, force
        )
        return
    changed = [CHANGES[name](int(number)) for name, number in assignments.items()]
    degrees = [replace(one, named=groups.get(one.role)) for one in changed if isinstance(one, Degree)]
    network = _interconnect(topology, system, "")
    recorded = _interconnect(recorded_topology, recorded_system, "recorded-")
    if recorded and not network:
        raise click.UsageError("--recorded-topology needs --topology: a ratio has two sides")
    if lost := sorted(groups.keys() - {degree.role for degree in degrees}):
        raise click.UsageError(f"--group {lost[0]} needs --set {lost[0]}=N")
    retimed = (Retimed(tuple(degrees), network, recorded),) if degrees or network else ()
    others = [one for one in changed if not isinstance(one, Degree)]
    replay = replay_prepared(ranks, changes, (*others, *retimed, *overlaps, *stragglers, *hosts_less, *scales))
    _check_changes(replay)
    replay = replace(replay, tokens=tokens)
    table = ablations(ranks) if with_ablations else None
    advice = [] if replay.whats or changes != Changes() else helps(replay)
    document = encode(to_dict(replay, advice, table))
    if output is not None:
        write(replay, document, Path(output), force=force)
    if chakra is not None:
        _export_chakra(replay, Path(chakra), force)
    if text is not None:
        write_files({Path(text): to_workload_text(replay).encode()}, force=force)
    click.echo(document if as_json else to_text(replay, advice, table) + "\n", nl=False)


def _interconnect(topology: str | None, system: str | None, prefix: str) -> Interconnect | None:
    """What a topology and a system file describe."""
    if topology is None and system is not None:
        raise click.UsageError(f"--{prefix}system needs --{prefix}topology")
    if topology is None:
        return None
    return Interconnect(load_topology(topology), config.read(system) if system else None)


def _refuse(options: dict[str, object]) -> None:
    """InputError for an option that does not go with another pipeline."""
    for name, value in options.items():
        if value:
            message = "does not go with another pipeline, which is a run of its own"
            raise InputError.at(name, message, hint="--export-text writes that run's workload for simcore run")


def _another_pipeline(
    replay: Replay, changes: dict[str, int | str], files: tuple[str | None, ...], text: str | None, as_json: bool,
    force: bool,
) -> None:  # fmt: skip
    """Compile the recorded step into a pipeline and play it."""
    from simcore.replay.pipelines.pipeline import NUMBERS, compiled, rebuild
    from simcore.replay.pipelines.report import pipeline_dict, pipeline_text
    from simcore.workload.text import write as workload_text

    machine, base = _interconnect(files[0], files[1], ""), _interconnect(files[2], files[3], "recorded-")
    if changes.keys() - {*NUMBERS, "schedule"} or machine is None:
        expected = f"{', '.join(NUMBERS)} and schedule" if machine else "--topology T, the machine to run on"
        message = "another pipeline is compiled from layers and played on a machine"
        raise InputError.at("--set", message, expected=expected, found=", ".join(changes))
    rebuilt = rebuild(replay, changes, machine, base)
    if text is not None:
        write_files({Path(text): workload_text(compiled(rebuilt.recorded, rebuilt.plan)).encode()}, force=force)
    document = encode(to_dict(replay) | {"pipeline": pipeline_dict(rebuilt)})
    click.echo(document if as_json else pipeline_text(rebuilt, replay.tokens) + "\n", nl=False)


def _check_aims(profiles: list[KinetoTrace], scales: tuple[WhatIf, ...], stragglers: tuple[Straggler, ...]) -> None:
    """Refuse changes of what is not there.

    Raises
    ------
    InputError
        When a pattern matches no task of any trace, or a straggler is none of the ranks.
    """
    names = sorted({trace.names[name] for trace in profiles for name in np.unique(trace.tasks.name).tolist()})
    for pattern in (scale.pattern for scale in scales if isinstance(scale, Scale)):
        if not any(pattern.search(name) for name in names):
            shown = ", ".join(name[:30] for name in names[:3])
            raise InputError.at("--scale", "no task's name matches", expected=f"{shown}, ...", found=pattern.pattern)
    known = [trace.rank for trace in profiles]
    hosts = [one for one in scales if isinstance(one, Host)]
    for option, ranks in [("--straggler", one.ranks) for one in stragglers] + [("--scale", one.ranks) for one in hosts]:
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


def _export_chakra(replay: Replay, folder: Path, force: bool) -> None:
    """Write step.RANK.et and say what the network will time."""
    exported = to_chakra(replay)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.at("--export-chakra", f"cannot write: {error.strerror or error}", found=str(folder)) from error
    write_files({folder / f"step.{rank}.et": content for rank, content in exported.files.items()}, force=force)
    click.echo(
        f"{folder}: {len(exported.files)} ranks; {exported.collectives} collectives for the network to time, "
        f"{exported.kept} communication kernels with their recorded time",
        err=True,
    )
