"""The Python face of `simcore run`: names and files in, a `Report` out.

What only some workloads need is imported where it is needed: a text workload starts in a third of a second.
"""

from __future__ import annotations

import glob
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from simcore import library
from simcore.engine.changes import changes
from simcore.engine.run import simulate
from simcore.engine.settings import Exact, Settings, noise_of, straggler_factors
from simcore.errors import DeadlockError, InputError, closest
from simcore.files import read_bytes
from simcore.network.faults import parse_faults
from simcore.network.topology import load as topology_file
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Topology
from simcore.noise import Noise
from simcore.profiles import NetworkMode, Profile, profiles
from simcore.report.document import HelpRow, Option, RuleRow
from simcore.report.model import Input, Report, spread_of
from simcore.system import config
from simcore.system import remote_memory as remote_memory_file
from simcore.timeline.events import Timeline
from simcore.workload import text
from simcore.workload.model import Dialect, GraphSet, Workload

if TYPE_CHECKING:
    from simcore.cost.answer import Answer
    from simcore.cost.cluster import Cluster
    from simcore.model.shape import Model

__all__ = ["load_topology", "load_workload", "predict", "run"]

NATIVE = "native"
TRACE_SUFFIXES = {".et", ".eg", ".gz", ".json"}
SPECIFICATION_SUFFIXES = {".yaml", ".yml"}
STANDARD_INPUT = "-"
TOLD = (
    *("queues_per_dim", "compute_scale", "comm_scale", "injection_scale", "rendezvous", "dialect", "straggler"),
    *("schedule", "exact", "npu", "seed", "jitter", "fault"),
)
"""Options that change figures, or how they were found, and are told nowhere else in the report."""
WAFER_OPTIONS = {
    "workload",
    "topology",
    "network",
    "compute_scale",
    "straggler",
    "npu",
    "no_fold",
    "link_times",
    "what_would_help",
}


def load_topology(name_or_path: str, profile: str = "native") -> Topology:
    """A topology file or a shipped name; `profile` decides what its gigabytes are."""
    return topology_file.load(name_or_path, gigabyte_forced=profiles.get(profile).gigabyte)


def load_workload(
    name_or_path: str, npus: int, *, dialect: Dialect | None = None, comm_groups: str | None = None
) -> Workload | GraphSet:
    """A 12-column text, a set of execution traces for `npus` NPUs, a shipped name, or - for text on standard input."""
    return _read_workload(_find_workload(name_or_path), npus, dialect, comm_groups, None).content


def predict(model: str | Model, cluster: str | Cluster, accelerators: int, seq: int, **words: Any) -> Answer:
    """One training step predicted.

    Parameters
    ----------
    model : str or Model
        A shipped model's name, a Hugging Face config.json, a YAML file of the fields of `Model`, or one itself.
    cluster : str or Cluster
        A known cluster's name, a file that describes one, or one itself.
    accelerators, seq : int
        How many there are; tokens of a sequence.
    **words
        Fields of `simcore.model.plan.Plan`: `tp`, `pp`, `micro_batch`, `global_batch`, ...; `dp` is what is left of the
        accelerators unless it is given, and must agree.

    Raises
    ------
    InputError
        Where degrees do not multiply to the accelerators, or do not divide what they split.

    >>> found = predict("llama-3-8b", "h100", 8, 8192, tp=8, global_batch=8, zero=1)
    >>> found.memory[0].total < found.cluster.memory_bytes
    True
    """
    from simcore.cost.answer import Answer
    from simcore.cost.words import cluster_of, model_of, plan_of

    shape = model_of(model) if isinstance(model, str) else model
    system = cluster_of(cluster) if isinstance(cluster, str) else cluster
    return Answer(shape, plan_of(shape, system, accelerators, {"seq": seq, **words}), system)


def run(
    workload: str,
    topology: str | None = None,
    system: str | None = None,
    *,
    profile: str = "native",
    iterations: int = 1,
    network: str = "",
    queues_per_dim: int = 1,
    compute_scale: float = 1.0,
    comm_scale: float = 1.0,
    injection_scale: float = 1.0,
    rendezvous: bool = False,
    dialect: Dialect | None = None,
    comm_groups: str | None = None,
    remote_memory: str | None = None,
    straggler: tuple[str, ...] = (),
    no_fold: bool = False,
    exact: str = "",
    schedule: str = "",
    npu: str | None = None,
    seed: int | None = None,
    jitter: tuple[str, ...] = (),
    runs: int = 1,
    fault: tuple[str, ...] = (),
    link_times: bool = False,
    what_would_help: bool = False,
    explain_profile: bool = False,
) -> Report:
    """Simulate a workload on a topology.

    Parameters
    ----------
    workload, topology, system : str
        Files, or names of shipped examples; "-" reads a text workload from standard input.
    profile : str
        Timing rules: native or a peer's (`simcore.profiles.profiles.names()`).
    iterations : int
        Training iterations; traces are run once.
    network : str
        congestion-free, congested or fair; "" = the profile's default.
    queues_per_dim : int
        Queues of every dimension, among which chunks are spread.
    compute_scale, comm_scale, injection_scale : float
        Factors on compute times, message sizes and endpoint delays.
    rendezvous : bool
        Every message asks, with a small one, before it is sent.
    dialect : str
        astra-sim or simai, where a text workload's header does not tell.
    comm_groups, remote_memory : str
        ASTRA-sim 2.x's JSON files.
    straggler : tuple of str
        ``RANKS=FACTOR`` or ``NAME=INDEXES:FACTOR`` each (tp, ep, dp, pp, dim0, ..): a factor on the compute times of
        some NPUs.
    no_fold : bool
        One process for every NPU; the answer is the same.
    exact : str
        messages: every message of every NPU goes over its own links, nothing is folded, solved or remembered. The
        answer is the same, which is what it is for; profile native.
    schedule : str
        Pipeline schedule of a text workload with ``pp`` > 1: gpipe, 1f1b, interleaved, zb-h1, zb-v or dualpipe;
        "" = interleaved with virtual stages, else 1f1b.
    npu : str
        Accelerator preset (`simcore list npus`) for durations that are computed: of a specification's rows, of trace
        nodes with operations (roofline), of a wafer's NPUs (default: wafer-node, or wafer-core for traces of cores).
    seed : int
        Of the noise; by default 0. Without `jitter` nothing is drawn.
    jitter : tuple of str
        ``compute=DISTRIBUTION:WIDTH``, ``links=DISTRIBUTION:WIDTH``: seeded noise, see docs/noise.md.
    runs : int
        With jitter, runs of the seeds ``seed`` to ``seed + runs - 1``; the report is the first one's, with mean, p5 and
        p95 of the time over all.
    fault : tuple of str
        ``link A-B xFACTOR @ BEGIN-END`` or ``link A-B down @ BEGIN-`` each.
    link_times : bool
        Keep when every link is occupied, which timelines show; the figures stay the same.
    what_would_help : bool
        Run again with faster NPUs, faster links, and without what troubles the run; the report tells what each change
        would save.
    explain_profile : bool
        Run again with every rule of the profile as the native model has it; the report tells what each rule adds.

    Returns
    -------
    Report
        What happened, see docs/report.md.

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
    options = locals()
    if profile not in profiles:
        expected = closest(profile, profiles.names())
        raise InputError.at("--profile", f"no such profile '{profile}'", expected=expected, found=repr(profile))
    rules = profiles.get(profile)
    if topology is None:
        raise InputError.at("--topology", "a topology is needed", hint="simcore list topologies shows the shipped ones")
    found = _find_workload(workload)
    _refuse_native(explain_profile, rules)
    machine = load_topology(topology, profile)
    if _is_wafer(found):
        _refuse_other_options(options)
        factors = straggler_factors(straggler, machine)
        settings = Settings(network=_network(network, rules), compute_scale=compute_scale, stragglers=factors)
        report = _run_wafer(found, (workload, topology), machine, settings, npu, help_wanted=what_would_help)
        return replace(report, options=_told(options))
    noise = noise_of(seed, jitter, runs, rules)
    machine = replace(machine, faults=parse_faults(fault, LinkGraph(machine)) if fault else ())
    source = _read_workload(found, machine.npus, dialect, comm_groups, npu)
    rows = source.content if isinstance(source.content, Workload) else None
    groups = rows.parallelism if rows else None
    settings = Settings(
        iterations, _network(network, rules), queues_per_dim, compute_scale, comm_scale, injection_scale, rendezvous,
        not no_fold, schedule, straggler_factors(straggler, machine, groups), link_times=link_times,
        exact=_exact(exact),
    )  # fmt: skip
    given = config.read(system) if system else None
    memory = remote_memory_file.read(remote_memory) if remote_memory else None
    case = _Case(source.content, machine, _with_preset(given, npu, source, rules, machine), rules, settings, memory)
    with _counted(workload):
        timeline = case.play(noise)
        others = [case.play(replace(noise, seed=noise.seed + number)).time_ns for number in range(1, runs)]
    files = {"topology": machine.path, "system": system, "comm-groups": comm_groups, "remote-memory": remote_memory}
    names = files | {"topology": topology}
    inputs = [Input("workload", workload, source.sha256)]
    inputs += [Input(role, str(names[role]), _sha256(Path(path))) for role, path in files.items() if path]
    schedules = given.schedules() if given else []
    inputs += [Input(f"schedule {Path(path).name}", path, _sha256(Path(path))) for path in schedules]
    warnings = (*source.content.warnings, *_warnings(source.content, rules, settings, noise), *timeline.notes)
    drawn = spread_of(noise.seed, jitter, [timeline.time_ns, *others]) if noise else None
    if seed is not None and not noise:
        warnings += (f"--seed {seed} changes nothing: without --jitter a run draws no random numbers",)
    helps = case.helps(timeline.time_ns, noise) if what_would_help else ()
    mode = settings.network or rules.networks[0]

    def time_under(other: Profile) -> int:
        built = topology_file.load(topology, gigabyte_forced=other.gigabyte)
        chosen = replace(settings, network=_network(network, other), link_times=False)
        preset = _with_preset(given, npu, source, other, built)
        built = replace(built, faults=machine.faults)
        return replace(case, machine=built, system=preset, rules=other, settings=chosen).play(noise).time_ns

    explained = _explained(timeline.time_ns, rules, time_under) if explain_profile else ()
    told = _told(options)
    return Report(
        timeline, profile, mode, tuple(inputs), warnings, noise=drawn, helps=helps, rules=explained, workload=rows,
        options=told,
    )  # fmt: skip


@contextmanager
def _counted(workload: str) -> Iterator[None]:
    """Numbers of this run that leave their range are an error of the input."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            yield
    except (OverflowError, FloatingPointError, MemoryError) as error:
        message = "the sizes or times of this run grow beyond what can be counted or kept"
        raise InputError.at(workload, message, expected="times and sizes below 2^63", found=str(error)) from error


@dataclass(frozen=True, slots=True)
class _Case:
    """A run with everything read."""

    content: Workload | GraphSet
    machine: Topology
    system: config.SystemConfig | None
    rules: Profile
    settings: Settings
    memory: remote_memory_file.RemoteMemory | None

    def play(self, noise: Noise) -> Timeline:
        """Simulate it under some noise."""
        return self._play(replace(self.machine, noise=noise), replace(self.settings, noise=noise))

    def helps(self, time_ns: int, noise: Noise) -> tuple[HelpRow, ...]:
        """What changes of the run would save."""
        machine, settings = replace(self.machine, noise=noise), replace(self.settings, noise=noise)
        return _helps(time_ns, self._play, machine, settings)

    def _play(self, machine: Topology, settings: Settings) -> Timeline:
        if isinstance(self.content, Workload):
            return simulate(self.content, machine, self.system, self.rules, settings)
        from simcore.engine.run_graph import simulate_graphs

        return simulate_graphs(self.content, machine, self.system, self.rules, settings, self.memory)


def _helps(
    time_ns: int,
    play: Callable[[Topology, Settings], Timeline],
    machine: Topology,
    settings: Settings,
) -> tuple[HelpRow, ...]:
    """The run with one thing better, for everything that can be, what saves most first."""
    found = changes(machine, replace(settings, link_times=False))
    times = [(text, play(topology, changed).time_ns) for text, topology, changed in found]
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
    system: config.SystemConfig | None, npu: str | None, source: _Source, rules: Profile, machine: Topology
) -> config.SystemConfig | None:
    """The system settings; an accelerator's name is short for a roofline of its rates."""
    if npu is None or isinstance(source.content, Workload):
        return system
    from simcore.compute.accelerators import accelerator

    preset = accelerator(npu)
    return replace(
        system or rules.system(machine), roofline=True, peak_flops=preset.peak("fp16"),
        local_memory_bytes_per_s=preset.memory_bytes_per_s,
    )  # fmt: skip


def _refuse_other_options(options: Mapping[str, object]) -> None:
    """InputError for an option that a workload of the wafer-scale generator does not take."""
    for name, parameter in signature(run).parameters.items():
        if name not in WAFER_OPTIONS and options[name] != parameter.default:
            option = f"--{name.replace('_', '-')}"
            raise InputError.at(option, "does not go with a workload of the wafer-scale generator")


def _told(options: Mapping[str, Any]) -> dict[str, Option]:
    """Options that were given and change figures."""
    defaults = signature(run).parameters
    given = {name: options[name] for name in TOLD if options[name] != defaults[name].default}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def _run_wafer(
    path: Path, given: tuple[str, str], machine: Topology, settings: Settings, npu: str | None, *, help_wanted: bool
) -> Report:
    """Play the steps of the wafer-scale generator."""
    from simcore.compute.accelerators import accelerator
    from simcore.engine.wafer import Rates
    from simcore.engine.wafer_run import simulate_wafer
    from simcore.generate.wse import source as wse
    from simcore.workload.wafer import NodeStep

    if settings.network == "fair":
        raise InputError.at("--network", "wafers are played congested or congestion-free", found="'fair'")
    source = wse.load(path)
    preset = accelerator(npu or ("wafer-node" if isinstance(source.steps[0], NodeStep) else "wafer-core"))
    rates = Rates(preset.peak("fp16") / 2, preset.memory_bytes_per_s)

    def play(topology: Topology, changed: Settings) -> Timeline:
        return simulate_wafer(source.steps, topology, rates, changed)

    with _counted(given[0]):
        timeline = play(machine, settings)
    helps = _helps(timeline.time_ns, play, machine, settings) if help_wanted else ()
    inputs = [Input("workload", given[0], source.sha256)]
    inputs += [Input("topology", given[1], _sha256(Path(machine.path)))] if machine.path else []
    inputs += [Input(role.replace("_", "-"), name, _sha256(Path(name))) for role, name in source.files]
    return Report(timeline, "native", settings.network or "congested", tuple(inputs), source.warnings, helps=helps)


@dataclass(frozen=True, slots=True)
class _Source:
    """A workload that has been read, and the SHA-256 of its file."""

    content: Workload | GraphSet
    sha256: str


def _find_workload(name: str) -> Path:
    """The path meant by --workload: standard input, a set's prefix, a file, or a shipped example."""
    prefix = Path(name)
    if name == STANDARD_INPUT or any(prefix.parent.glob(f"{glob.escape(prefix.name)}.*.e[tg]*")):
        return prefix
    return library.resolve(name, "workloads")


def _read_workload(path: Path, npus: int, dialect: Dialect | None, comm_groups: str | None, npu: str | None) -> _Source:
    if str(path) == STANDARD_INPUT:
        _refuse_preset(npu)
        content = sys.stdin.read()
        return _Source(text.parse(content, "<stdin>", dialect), hashlib.sha256(content.encode()).hexdigest())
    if path.suffix not in TRACE_SUFFIXES and not path.is_dir() and (path.is_file() or path.suffix):
        return _Source(_program(path, dialect, npu), _sha256(path))
    from simcore.workload.chakra.groups import read_groups
    from simcore.workload.chakra.reader import read_graphs

    communicators = read_groups(comm_groups, npus) if comm_groups else None
    graphs = read_graphs(str(path), npus, communicators)
    digest = hashlib.sha256()
    for graph in graphs.graphs:
        digest.update(read_bytes(graph.path))
    return _Source(graphs, digest.hexdigest())


def _program(path: Path, dialect: Dialect | None, npu: str | None) -> Workload:
    """The workload of a text file, or the one that a generator's specification describes."""
    if path.suffix not in SPECIFICATION_SUFFIXES:
        _refuse_preset(npu)
        return text.read(path, dialect)
    from simcore.generate.step import load_step

    return load_step(path, npu).workload


def _is_wafer(path: Path) -> bool:
    """Whether a workload is the wafer-scale generator's."""
    if not path.is_dir() and path.suffix not in SPECIFICATION_SUFFIXES:
        return False
    from simcore.generate.wse.source import is_source

    return is_source(path)


def _refuse_preset(npu: str | None) -> None:
    """InputError when an accelerator is named for a text workload."""
    if npu:
        message = "every row of a text workload gives its own durations: nothing is left to compute"
        raise InputError.at("--npu", message, expected="a specification, traces with operations, or a wafer workload")


def _network(name: str, rules: Profile) -> NetworkMode:
    """The network mode, by default the profile's."""
    if name and name not in rules.networks:
        message = f"profile {rules.name} has no network '{name}'"
        raise InputError.at("--network", message, expected=closest(name, rules.networks), found=repr(name))
    return next((mode for mode in rules.networks if mode == name), rules.networks[0])


def _exact(name: str) -> Exact:
    """How a run must be played."""
    if name not in get_args(Exact):
        raise InputError.at("--exact", f"a run is not played by '{name}'", expected="messages", found=repr(name))
    return "messages" if name else ""


def _warnings(workload: Workload | GraphSet, rules: Profile, settings: Settings, noise: Noise) -> Iterator[str]:
    """What the run leaves out or takes differently from what one may expect."""
    if noise.compute and settings.fold:
        yield "jitter tells NPUs apart: each is a process of its own, and the run's cost grows with their number"
    if isinstance(workload, Workload):
        if workload.parallelism.pp > 1 and not rules.pipelines:
            yield (
                f"pp: {workload.parallelism.pp}: the rows are run as one pipeline stage's; "
                "transfers between stages and pipeline bubbles are not in the answer"
            )
        if workload.dialect == "simai" and not rules.total_all_gather:
            yield f"profile {rules.name} takes all-gather sizes as bytes per rank; SimAI's files give totals"
    elif not rules.graph.scales and (settings.compute_scale != 1 or settings.comm_scale != 1):
        yield f"profile {rules.name} ignores --compute-scale and --comm-scale, as its original does"


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()
