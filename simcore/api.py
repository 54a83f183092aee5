"""The Python face of `simcore run`: names and files in, a `Report` out."""

from __future__ import annotations

import hashlib
from pathlib import Path

from simcore import library
from simcore.engine.run import simulate
from simcore.engine.settings import Settings, straggler_factors
from simcore.errors import InputError, closest
from simcore.network.topology import load as topology_file
from simcore.profiles import NetworkMode, Profile, profiles
from simcore.report.model import Input, Report
from simcore.system import config
from simcore.workload import text
from simcore.workload.model import Dialect

__all__ = ["run"]


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
    workload_path = library.resolve(workload, "workloads")
    machine = topology_file.load(topology, gigabyte_forced=rules.gigabyte)
    program = text.read(workload_path, dialect)
    settings = Settings(
        iterations, _network(network, rules), queues_per_dim, compute_scale, comm_scale, injection_scale, rendezvous,
        not no_fold, straggler_factors(straggler, machine.npus), seed,
    )  # fmt: skip
    timeline = simulate(program, machine, config.read(system) if system else None, rules, settings)
    files = {"workload": (workload, workload_path), "topology": (topology, Path(machine.path))}
    if system:
        files["system"] = (system, Path(system))
    inputs = tuple(Input(role, given, _sha256(path)) for role, (given, path) in files.items())
    return Report(timeline, profile, settings.network, inputs, program.warnings)


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
