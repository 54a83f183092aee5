"""The Python face of `simcore run`: names and files in, a `Report` out."""

from __future__ import annotations

import glob
import hashlib
from pathlib import Path

from simcore import library
from simcore.engine.run import simulate
from simcore.engine.run_graph import simulate_graphs
from simcore.engine.settings import Settings, straggler_factors
from simcore.errors import InputError, closest
from simcore.network.topology import load as topology_file
from simcore.profiles import NetworkMode, Profile, profiles
from simcore.report.model import Input, Report
from simcore.system import config
from simcore.system import remote_memory as remote_memory_file
from simcore.workload import text
from simcore.workload.chakra.groups import read_groups
from simcore.workload.chakra.reader import read_graphs
from simcore.workload.model import Dialect, Workload

__all__ = ["run"]

TRACE_SUFFIXES = {".et", ".eg", ".gz", ".json"}
SPECIFICATION_SUFFIXES = {".yaml", ".yml"}


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
    seed: int = 0,
) -> Report:
    """Simulate a workload on a topology.

    Parameters
    ----------
    workload, topology, system : str
        Files, or names of shipped examples.
    profile : str
        Timing rules: native or a peer's, see `simcore.profiles`.
    straggler : tuple of str
        ``RANKS=FACTOR`` each: a factor on the compute times of some NPUs.

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
    """
    rules = profiles.get(profile)
    if topology is None:
        raise InputError.at("--topology", "a topology is needed", hint="simcore list topologies shows the shipped ones")
    prefix = Path(workload)
    is_set = any(prefix.parent.glob(f"{glob.escape(prefix.name)}.*.e[tg]*"))
    workload_path = prefix if is_set else library.resolve(workload, "workloads")
    machine = topology_file.load(topology, gigabyte_forced=rules.gigabyte)
    settings = Settings(
        iterations, _network(network, rules), queues_per_dim, compute_scale, comm_scale, injection_scale, rendezvous,
        not no_fold, straggler_factors(straggler, machine.npus), seed,
    )  # fmt: skip
    rest = {"system": system, "comm-groups": comm_groups, "remote-memory": remote_memory}
    system_config = config.read(system) if system else None
    if _is_text(workload_path):
        program = _program(workload_path, dialect)
        timeline = simulate(program, machine, system_config, rules, settings)
        files = {"workload": (workload, workload_path)}
        warnings = program.warnings
    else:
        communicators = read_groups(comm_groups, machine.npus) if comm_groups else None
        graphs = read_graphs(str(workload_path), machine.npus, communicators)
        memory = remote_memory_file.read(remote_memory) if remote_memory else None
        timeline = simulate_graphs(graphs, machine, system_config, rules, settings, memory)
        files = {"workload": (workload, Path(graphs.graphs[0].path))}
        warnings = graphs.warnings
    files["topology"] = (topology, Path(machine.path))
    files |= {role: (path, Path(path)) for role, path in rest.items() if path}
    inputs = tuple(Input(role, given, _sha256(path)) for role, (given, path) in files.items())
    return Report(timeline, profile, settings.network or rules.networks[0], inputs, warnings)


def _program(path: Path, dialect: Dialect | None) -> Workload:
    """The workload of a text file, or the one that a generator's specification describes."""
    if path.suffix not in SPECIFICATION_SUFFIXES:
        return text.read(path, dialect)
    from simcore.generate import spec

    return spec.load(path)


def _is_text(path: Path) -> bool:
    """Whether a workload is a 12-column text: anything with a suffix that is not a trace's; a set has none."""
    return path.suffix not in TRACE_SUFFIXES and not path.is_dir() and (path.is_file() or bool(path.suffix))


def _network(name: str, rules: Profile) -> NetworkMode:
    """The network mode, by default the profile's."""
    if name and name not in rules.networks:
        raise InputError.at(
            "--network",
            f"profile {rules.name} has no network '{name}'",
            expected=closest(name, rules.networks),
            found=repr(name),
        )
    return next((mode for mode in rules.networks if mode == name), rules.networks[0])


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
