"""The Python face of `simcore run`: names and files in, a `Report` out.

What only some workloads need is imported where it is needed: a text workload starts in a third of a second.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from simcore import library
from simcore.documents import read_text, tell_at_options
from simcore.engine.changes import changeable, changes
from simcore.engine.run import simulate
from simcore.engine.settings import Settings, noise_of, straggler_factors
from simcore.engine.setup import usual_system
from simcore.errors import DeadlockError, InputError, closest, unlike
from simcore.files import sha256
from simcore.network.faults import parse_faults
from simcore.network.topology import load as topology_file
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.options import ROWS, TRACES, RunOptions, SimaiOptions, spelled
from simcore.profiles import NetworkMode, Profile, profiles
from simcore.report.document import HelpRow, Option, RuleRow
from simcore.report.model import Input, Report, spread_of
from simcore.system import config
from simcore.system.memory import read_remote
from simcore.timeline.events import Timeline
from simcore.workload import text
from simcore.workload.model import Dialect, GraphSet, Workload

if TYPE_CHECKING:
    from simcore.cost.answer import Answer
    from simcore.cost.simai.report import SimaiReport
    from simcore.cost.systems import Cluster
    from simcore.model.shape import Model
    from simcore.workload.chakra.builder import GraphBuilder

Source = tuple[Workload | GraphSet, str]
"""A workload that has been read, and the SHA-256 of its file."""
NATIVE = "native"
SPECIFICATION_SUFFIXES = {".yaml", ".yml"}
STANDARD_INPUT = "-"
MOST_STEPS = 20_000_000
ROUND_RATES = "wafers: rates of nodes and cores are round figures, no measurements; --npu names others"


def load_topology(name_or_path: str | os.PathLike[str], profile: str = "native") -> Topology:
    """Read a network.

    Parameters
    ----------
    name_or_path : str or path
        A file in a form of docs/topologies.md, or the name of a shipped example.
    profile : str
        Whose timing rules will play it: they decide whether a gigabyte of the file is 10^9 or 2^30 bytes.

    Raises
    ------
    InputError
        If there is no such file or something in it is wrong; it lists every problem with its place.
    """
    return topology_file.load(path_of("topology", name_or_path), gigabyte_forced=profiles.get(profile).gigabyte)


def load_workload(
    name_or_path: str | os.PathLike[str],
    npus: int = 0,
    *,
    dialect: Dialect | None = None,
    comm_groups: str | os.PathLike[str] | None = None,
) -> Workload | GraphSet:
    """Read a workload.

    Parameters
    ----------
    name_or_path : str or path
        A text with 12 columns, a set of execution traces, a shipped name, or - for a text on standard input.
    npus : int
        How many NPUs traces are of; 0 takes as many as there are files.
    dialect : "astra-sim", "simai" or None
        Whose text it is; None: what its header tells.
    comm_groups : str, path or None
        A file of the communicators of traces (ASTRA-sim 2.x JSON); None takes PREFIX.groups.json where it is there.

    Returns
    -------
    Workload or GraphSet
        The rows of a text, or the graphs of traces. `run` takes either, as often as you like.

    Raises
    ------
    InputError
        If a file is not there or wrong, or an argument is for another kind; it lists every problem with its place.
    """
    from simcore.workload.chakra.reader import count_ranks

    path = _find_workload(path_of("workload", name_or_path))
    asked = RunOptions.of({"dialect": dialect, "comm_groups": comm_groups})
    if idle := [*_idle(asked, None, ROWS if _has_rows(path) else TRACES)]:
        raise InputError.at(str(path), idle[0])
    return _read_workload(path, npus or count_ranks(path), asked)[0]


def predict(
    model: str | os.PathLike[str] | Model,
    cluster: str | os.PathLike[str] | Cluster,
    accelerators: int,
    seq: int,
    *,
    conditions: str = "",
    software: str = "",
    **words: Any,
) -> Answer:
    """One training step predicted.

    Parameters
    ----------
    model : str, path or Model
        A shipped model's name, a Hugging Face config.json, a YAML file of the fields of `Model`, or one itself.
    cluster : str, path or Cluster
        A known cluster's name, a file that describes one, or one itself.
    accelerators, seq : int
        How many there are; tokens of a sequence.
    conditions : str
        What the step loses: "benchmark" (nothing) or "production"; "" = as the cluster says.
    software : str
        What runs it: a profile ("megatron-core") or a framework's name ("TorchTitan"); "" = as the cluster says.
    **words
        Fields of `simcore.model.plan.Plan`: `tp`, `pp`, `micro_batch`, `global_batch`, ...; `dp` is what is left of the
        accelerators unless it is given, and must agree.

    Returns
    -------
    Answer
        `step_s` and `interval_s` in seconds, `memory` of every stage in bytes, `to_dict()` all of it.

    Raises
    ------
    InputError
        Where a word is not one of a plan's, or degrees do not multiply to the accelerators or divide what they split.

    >>> found = predict("llama-3-8b", "h100", 8, 8192, tp=8, global_batch=8)
    >>> found.memory[0].total < found.cluster.memory_bytes
    True
    """
    from simcore.cost.answer import Answer
    from simcore.cost.words import cluster_of, model_of, of_size, plan_of, under

    shape, system = model_of(model), of_size(under(conditions, cluster_of(cluster), software), accelerators)
    return Answer(shape, plan_of(shape, system, accelerators, {"seq": seq, **words}), system)


@overload
def run(
    workload: str | os.PathLike[str] | Workload, *, profile: Literal["simai-1.6", "simai-busbw"], **options: Any
) -> SimaiReport: ...


@overload
def run(
    workload: str | os.PathLike[str] | Workload | GraphSet | GraphBuilder,
    topology: str | os.PathLike[str] | Topology | None = None,
    system: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Report: ...


def run(
    workload: str | os.PathLike[str] | Workload | GraphSet | GraphBuilder,
    topology: str | os.PathLike[str] | Topology | None = None,
    system: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Report | SimaiReport:
    """Simulate a workload on a topology.

    Parameters
    ----------
    workload : str, path, what `load_workload` gives, or a graph made by hand (`simcore.graph`)
        A file or the name of a shipped example; "-" reads a text workload from standard input.
    topology : str, path or what `load_topology` gives
        A file or the name of a shipped example.
    system : str or path
        A system file.
    **options
        Those of `simcore run`, with underscores; the ones that are repeated there take a text or several
        (``straggler="5=2"``). `simcore.options.RunOptions` lists them with their defaults.

    Returns
    -------
    Report
        What happened, see docs/report.md. Profiles `simai-1.6` and `simai-busbw` simulate nothing: without a topology
        they take the fields of `simcore.options.SimaiOptions`, and what they give has `to_dict`, too.

    Raises
    ------
    InputError
        If an input is wrong; it lists every problem with its place.
    DeadlockError
        If the workload cannot finish.

    Examples
    --------
    >>> report = run("micro_all_reduce", "ring8", profile="astra-sim-1.0")
    >>> report.to_dict()["npus"]
    8
    """
    if options.get("profile") in SimaiOptions.profiles:
        return closed_forms(workload, options | {"topology": topology, "system": system})
    try:
        return play(workload, topology, system, RunOptions.of(options))
    except InputError as error:
        given = {"workload": workload, "topology": topology, "system": system} | options
        tell_at_options(error, [(spelled(name), value) for name, value in given.items()])
        raise


run.__signature__ = Signature(  # type: ignore[attr-defined]  # help(simcore.run) shows every option
    [
        *list(signature(run).parameters.values())[:3],
        *(Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default) for each in fields(RunOptions)),
    ],
    return_annotation="Report",
)


def closed_forms(
    workload: str | os.PathLike[str] | Workload | GraphSet | GraphBuilder, given: Mapping[str, Any]
) -> SimaiReport:
    """`run` with a profile of SimAI's: the workload is found and read as for a simulation, in SimAI's dialect."""
    from simcore.cost.simai.report import estimate

    if isinstance(workload, Workload):
        workload.check()
        return estimate(workload, given)
    found = _find_workload(str(workload)) if isinstance(workload, str | os.PathLike) else None
    if found is None or not _has_rows(found):
        message, told = f"profile {given['profile']} adds up rows, which this has not", type(workload).__name__
        raise InputError.at("--workload", message, expected="a text or a specification", found=str(found or told))
    rows, digest = _read_rows(found, "simai")
    return estimate(rows, given, Input("workload", str(found), digest))


def play(
    workload: str | os.PathLike[str] | Workload | GraphSet | GraphBuilder,
    topology: str | os.PathLike[str] | Topology | None,
    system: str | os.PathLike[str] | None,
    asked: RunOptions,
) -> Report:
    """`run` with options that have been read."""
    if asked.profile not in profiles:
        expected = closest(asked.profile, [*profiles.names(), *SimaiOptions.profiles])
        raise InputError.at("--profile", "no such profile", expected=expected, found=repr(asked.profile))
    rules = profiles.get(asked.profile)
    _refuse_native(asked.explain_profile, rules)
    if asked.power:
        from simcore.compute.accelerators import accelerator
        from simcore.compute.power import limit_w

        limit_w(accelerator(asked.power))
    machine, place = machine_of(topology, asked.profile), place_of(topology)
    system = None if system is None else path_of("system", system, "a path")
    if not isinstance(workload, str | os.PathLike | Workload | GraphSet):
        if not hasattr(workload, "graphs"):
            expected = "a name, a path, what load_workload gives, or a graph made by hand"
            raise unlike("workload", workload, expected)
        workload = workload.graphs()
    if isinstance(workload, GraphSet) and len(workload.graph_of_rank) != machine.npus:
        found_npus = f"graphs of {len(workload.graph_of_rank)} NPUs"
        raise InputError.at(place, "not the NPUs of the graphs", expected=f"{machine.npus} graphs", found=found_npus)
    if isinstance(workload, Workload):
        workload.check()
    if isinstance(workload, Workload | GraphSet):
        return _run((workload, ""), "", machine, place, str(system or ""), rules, asked)
    found = _find_workload(str(workload))
    if _is_wafer(found):
        return _run_wafer(found, (str(workload), place, str(system or "")), machine, rules, asked)
    asked = replace(asked, comm_groups=asked.comm_groups or library.groups_of(found))
    source = _read_workload(found, machine.npus, asked)
    return _run(source, str(workload), machine, place, str(system or ""), rules, asked)


def place_of(topology: str | os.PathLike[str] | Topology | None) -> str:
    """What a report calls a topology: as it was given, or the file that it was loaded from."""
    return topology.path or "topology" if isinstance(topology, Topology) else str(topology)


def machine_of(topology: str | os.PathLike[str] | Topology | None, profile: str) -> Topology:
    """The topology that is given, loaded if it is named."""
    if topology is None:
        raise InputError.at("--topology", "a topology is needed", hint="simcore list topologies shows the shipped ones")
    if isinstance(topology, Topology):
        return topology
    named = path_of("topology", topology, "a name, a path, or what load_topology gives")
    try:
        return load_topology(named, profile)
    except InputError as error:
        tell_at_options(error, [("--topology", named)])  # the workload may have the same name
        raise


def path_of(role: str, value: object, expected: str = "a name or a path") -> str:
    """The name or path of an input as a text; InputError for anything else."""
    if not isinstance(value, str | os.PathLike):
        raise unlike(role, value, expected)
    return str(value)


def _run(
    source: Source, workload: str, machine: Topology, place: str, system: str, rules: Profile, asked: RunOptions
) -> Report:
    """A text workload or traces, played."""
    content, digest = source
    noise = noise_of(asked.seed, asked.jitter, asked.runs, rules)
    faults = parse_faults(asked.fault, LinkGraph(machine)) if asked.fault else ()
    machine = replace(machine, faults=faults, noise=noise)
    rows, mode = content if isinstance(content, Workload) else None, network_of(asked.network, rules)
    factors = straggler_factors(asked.straggler, machine, rows.parallelism if rows else None)
    settings = replace(settings_of(asked, mode, factors), noise=noise)
    _check_length(asked.iterations, content)
    given = config.read(system) if system else None
    memory = read_remote(asked.remote_memory) if asked.remote_memory else None

    def played(built: Topology, chosen: Settings, model: Profile = rules) -> Timeline:
        preset = _with_preset(given, asked.npu, content, model, built)
        return simulate(content, built, preset, model, chosen, memory)

    with _counted(workload or "workload"):
        timeline = played(machine, settings)
        draws = [replace(noise, seed=noise.seed + number) for number in range(1, asked.runs)]
        others = [played(replace(machine, noise=draw), replace(settings, noise=draw)).time_ns for draw in draws]
    inputs = [Input("workload", workload, digest)] if workload else []
    inputs += [Input("topology", place, sha256(*machine.files))] if machine.path else []
    schedules = given.schedules() if given else []
    named = [("system", system), ("comm-groups", asked.comm_groups), ("remote-memory", asked.remote_memory)]
    named += [(f"schedule {Path(found.location.file).name}", found.location.file) for found in schedules]
    inputs += [Input(role, path, sha256(path)) for role, path in named if path]
    warnings = (*content.warnings, *cautions(content, rules, settings, given), *timeline.notes)
    warnings += (*_idle(asked, given, ROWS if rows else TRACES), *machine.notes())
    warnings += tuple(dict.fromkeys(found.note for found in schedules if found.note))
    if rows and rows.parallelism.all_gpus not in (0, machine.npus):
        there = f"{rows.parallelism.all_gpus:,} GPUs and the topology {machine.npus:,} NPUs"
        warnings += (f"the workload's header says {there}: it is run on those of the topology",)
    if machine.npus == 1:
        warnings += ("the machine has one NPU: nothing is sent",)
    if not timeline.time_ns:
        warnings += ("the workload computes nothing and sends nothing: it takes no time",)
    drawn = spread_of(noise.seed, asked.jitter, [timeline.time_ns, *others]) if noise else None
    if asked.seed is not None and not noise:
        warnings += (f"--seed {asked.seed} changes nothing: without --jitter a run draws no random numbers",)
    scaling, heard = (rules, settings) if rows else changeable(rules, settings)

    def time_under(other: Profile) -> int:
        built = topology_file.load(place, gigabyte_forced=other.gigabyte) if machine.path else machine
        chosen = replace(settings, network=network_of(asked.network, other), link_times=False)
        return played(replace(built, faults=faults, noise=noise), chosen, other).time_ns

    return Report(
        timeline,
        rules.name,
        settings.network or rules.networks[0],
        tuple(inputs),
        warnings,
        noise=drawn,
        helps=_helps(timeline.time_ns, partial(played, model=scaling), machine, heard) if asked.what_would_help else (),
        rules=_explained(timeline.time_ns, rules, time_under) if asked.explain_profile else (),
        workload=rows,
        options=told(asked),
    )


AS_ASKED = ("iterations", "queues_per_dim", "compute_scale", "comm_scale", "injection_scale", "rendezvous", "schedule",
            "link_times", "exact")  # fmt: skip


def settings_of(asked: RunOptions, network: NetworkMode, stragglers: Mapping[int, float]) -> Settings:
    """What the engine is to do for the options of a run."""
    same = {name: getattr(asked, name) for name in AS_ASKED}
    return Settings(**same, network=network, fold=not asked.no_fold, stragglers=stragglers)


@contextmanager
def _counted(workload: str) -> Iterator[None]:
    """Numbers of this run that leave their range are an error of the input."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            yield
    except (OverflowError, FloatingPointError) as error:
        message = "the sizes or times of this run grow beyond what can be counted"
        expected = "times below 2^62 ns (146 years) and sizes below 2^63 bytes"
        raise InputError.at(workload, message, expected=expected) from error


def _helps(
    time_ns: int, play: Callable[[Topology, Settings], Timeline], machine: Topology, settings: Settings
) -> tuple[HelpRow, ...]:
    """The run with one thing better, for everything that can be, what saves most first."""
    times = [(text, play(net, one).time_ns) for text, net, one in changes(machine, replace(settings, link_times=False))]
    rows: list[HelpRow] = [{"change": text, "time_ns": took, "saved_ns": time_ns - took} for text, took in times]
    return tuple(sorted(rows, key=lambda row: -row["saved_ns"]))


def _explained(time_ns: int, rules: Profile, time_under: Callable[[Profile], int]) -> tuple[RuleRow, ...]:
    """The run without each rule of its profile, what changes most first; at the end without all of them."""
    native = profiles.get(NATIVE)
    found = [_without(rule.text, time_ns, partial(time_under, rules.turned(rule, native))) for rule in rules.rules]
    found.sort(key=lambda row: -abs(row["added_ns"] or 0))
    return (*found, _without(f"All of these: profile {NATIVE}.", time_ns, partial(time_under, native)))


def _without(text: str, time_ns: int, other_time: Callable[[], int]) -> RuleRow:
    """What a rule adds to a time; why there is no other time, when the run is refused or cannot finish without it."""
    try:
        took = other_time()
    except InputError as error:
        return {"rule": text, "time_ns": None, "added_ns": None, "refused": error.problems[0].message}
    except DeadlockError as error:
        return {"rule": text, "time_ns": None, "added_ns": None, "refused": str(error).partition("\n")[0]}
    return {"rule": text, "time_ns": took, "added_ns": time_ns - took, "refused": ""}


def _refuse_native(explain_profile: bool, rules: Profile) -> None:
    """InputError when the rules of the model that rules depart from are to be explained."""
    if explain_profile and not rules.rules:
        expected = ", ".join(name for name in profiles.names() if profiles.get(name).rules)
        message = f"profile {rules.name} departs from nothing"
        raise InputError.at("--explain-profile", message, expected=f"--profile {expected}")


def _with_preset(
    system: config.SystemConfig | None, npu: str, workload: Workload | GraphSet, rules: Profile, machine: Topology
) -> config.SystemConfig | None:
    """The system settings; an accelerator's name is short for a roofline of its rates."""
    if not npu or isinstance(workload, Workload):
        return system
    from simcore.compute.accelerators import accelerator
    from simcore.engine.graphs import on_roofline

    if not any(on_roofline(graph).any() for graph in workload.graphs):
        _refuse_preset(npu, "no computation of the traces says its operations")
    if system and system.replay_only:
        _refuse_preset(npu, "replay-only: every node takes its recorded duration")
    preset = accelerator(npu)
    return replace(
        system or usual_system(machine, rules), roofline=True, peak_flops=preset.peak("fp16"),
        local_memory_bytes_per_s=preset.memory_bytes_per_s,
    )  # fmt: skip


def told(asked: RunOptions) -> dict[str, Option]:
    """Options that were given, change figures, and are told nowhere else in the report."""
    given = {option.name: value for option, value in asked.changed() if option.metadata.get("told")}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def _run_wafer(path: Path, given: tuple[str, str, str], machine: Topology, rules: Profile, asked: RunOptions) -> Report:
    """Play the steps of the wafer-scale generator; InputError for an option that they do not take, which a system is.

    `given` names workload, topology and system, "" where there is none.
    """
    from simcore.compute.accelerators import accelerator
    from simcore.generate.wse import source as wse
    from simcore.wafer.run import simulate_wafer
    from simcore.wafer.steps import Rates
    from simcore.workload.wafer import NodeStep

    refused = [spelled(option.name) for option, _ in asked.changed() if not option.metadata.get("wafer")]
    for option in ["--system"] * bool(given[2]) + refused:
        raise InputError.at(option, "does not go with a workload of the wafer-scale generator")
    factors, mode = straggler_factors(asked.straggler, machine), network_of(asked.network, rules)
    settings = settings_of(asked, mode, factors)
    if mode in ("fair", "queued"):
        message = "wafers are played congested or congestion-free"
        raise InputError.at("--network", message, found=repr(mode))
    source = wse.load(path)
    preset = accelerator(asked.npu or ("wafer-node" if isinstance(source.steps[0], NodeStep) else "wafer-core"))
    rates = Rates(preset.peak("fp16") / 2, preset.memory_bytes_per_s)

    def play(topology: Topology, changed: Settings) -> Timeline:
        return simulate_wafer(source.steps, topology, rates, changed)

    with _counted(given[0]):
        timeline = play(machine, settings)
    helps = _helps(timeline.time_ns, play, machine, settings) if asked.what_would_help else ()
    inputs = [Input("workload", given[0], source.sha256)]
    inputs += [Input("topology", given[1], sha256(*machine.files))] if machine.path else []
    inputs += [Input(role.replace("_", "-"), name, sha256(name)) for role, name in source.files]
    warnings = (*source.warnings, *source.misplaced([dim.npus for dim in machine.dims]))
    warnings += (ROUND_RATES,) * (not asked.npu)
    return Report(timeline, "native", mode, tuple(inputs), warnings, helps=helps, options=told(asked))


def _find_workload(name: str) -> Path:
    """The path meant by --workload: standard input, a set's prefix, a file, or a shipped example."""
    return Path(name) if name == STANDARD_INPUT else library.resolve(name, "workloads")


def _read_workload(path: Path, npus: int, asked: RunOptions) -> Source:
    if _has_rows(path):
        return _read_rows(path, cast("Dialect | None", asked.dialect), asked.npu)
    from simcore.workload.chakra.groups import of_set, unused
    from simcore.workload.chakra.reader import read_graphs

    graphs = read_graphs(str(path), npus, of_set(str(path), npus, asked.comm_groups))
    graphs = replace(graphs, warnings=(*graphs.warnings, *unused(graphs, asked.comm_groups)))
    return graphs, sha256(*(graph.path for graph in graphs.graphs))


def _has_rows(path: Path) -> bool:
    """Whether a workload is a text, from a pipe too, or a specification, and no traces."""
    return str(path) == STANDARD_INPUT or path.is_fifo() or library.is_program(path)


def _read_rows(path: Path, dialect: Dialect | None, npu: str = "") -> tuple[Workload, str]:
    """The rows of a text, from a pipe too, or of what a specification describes, and the SHA-256 of the file."""
    piped = path.is_fifo()
    if not piped and str(path) != STANDARD_INPUT:
        return program(path, dialect, npu), sha256(path)
    _refuse_preset(npu)
    if not piped and sys.stdin is None:
        raise InputError.at("<stdin>", "standard input is closed", expected="a text workload")
    content = read_text(path) if piped else sys.stdin.read()
    parsed = text.parse(content, str(path) if piped else "<stdin>", dialect)
    return parsed, hashlib.sha256(content.encode()).hexdigest()


def program(path: Path, dialect: Dialect | None = None, npu: str = "") -> Workload:
    """The workload of a text file, or the one that a generator's specification describes."""
    if path.suffix not in SPECIFICATION_SUFFIXES:
        _refuse_preset(npu)
        return text.read(path, dialect)
    from simcore.generate.step import load_step

    return load_step(path, npu or None).workload


def _is_wafer(path: Path) -> bool:
    if not path.is_dir() and path.suffix not in SPECIFICATION_SUFFIXES:
        return False
    from simcore.generate.wse.source import is_source

    return is_source(path)


def _refuse_preset(npu: str, cause: str = "every row of a text workload gives its own durations") -> None:
    if npu:
        expected = "a specification, traces with operations, or a wafer workload"
        raise InputError.at("--npu", f"{cause}: nothing is left to compute", expected=expected)


def network_of(name: str, rules: Profile) -> NetworkMode:
    """The network mode, by default the profile's."""
    if name and name not in rules.networks:
        message = f"profile {rules.name} has no network '{name}'"
        raise InputError.at("--network", message, expected=closest(name, rules.networks), found=repr(name))
    return next((mode for mode in rules.networks if mode == name), rules.networks[0])


def _check_length(iterations: int, workload: Workload | GraphSet) -> None:
    """InputError for more steps than anybody would wait for."""
    steps = iterations * 3 * len(workload.layers) if isinstance(workload, Workload) else 0
    if steps > MOST_STEPS:
        expected = f"at most {MOST_STEPS // (steps // iterations):,}; a few show what every further one takes"
        message = f"{steps:,} phases of layers are too many to play and to keep"
        raise InputError.at("--iterations", message, expected=expected, found=f"{iterations:,}")


def _idle(asked: RunOptions, system: config.SystemConfig | None, kind: str) -> Iterator[str]:
    """What was given for another kind of workload."""
    options = (spelled(option.name) for option, _ in asked.changed() if option.metadata.get("only", kind) != kind)
    of_traces = {"roofline-enabled": system.roofline, "replay-only": system.replay_only} if system else {}
    for name in (*options, *(key for key, on in of_traces.items() if on and kind != TRACES)):
        yield f"{name} changes nothing: it is for {TRACES if kind == ROWS else ROWS}"


def cautions(
    workload: Workload | GraphSet, rules: Profile, settings: Settings, given: config.SystemConfig | None
) -> Iterator[str]:
    """What the run leaves out or takes differently from what one may expect; `given`: what a system file says."""
    if settings.noise.compute:  # also with --no-fold: nothing may differ there
        yield "jitter tells NPUs apart: each is a process of its own, and the run's cost grows with their number"
    if isinstance(workload, Workload):
        if workload.parallelism.pp > 1 and not rules.pipelines:
            missing = "transfers between stages and pipeline bubbles are not in the answer"
            yield f"pp: {workload.parallelism.pp}: the rows are run as one pipeline stage's; {missing}"
        yield from rules.unsaid(workload)
    elif not rules.graph.scales and (settings.compute_scale != 1 or settings.comm_scale != 1):
        yield f"profile {rules.name} ignores --compute-scale and --comm-scale, as its original does"
    yield from rules.unheeded(given) if given else ()
