"""One run of a study: from its configuration to its row."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, cast

import simcore
from simcore import library
from simcore.documents import read
from simcore.errors import InputError, Problems, SimcoreError
from simcore.files import read_bytes, sha256
from simcore.network.topology.model import Topology
from simcore.progress import metered
from simcore.sweep.study import SHELVES, SLOWDOWN, Configuration, steps
from simcore.system import config
from simcore.workload.jobs import named_by

INPUTS = ("workload", "topology", "system", "comm_groups", "remote_memory", "busbw")
SPECIFICATION_SUFFIXES = (".yaml", ".yml")


class Row(TypedDict):
    """A finished run: `figures` are empty and `error` tells why where it failed."""

    key: str
    options: Configuration
    inputs: dict[str, str]
    version: str
    figures: dict[str, int | float]
    error: str


@dataclass(frozen=True, slots=True)
class Task:
    """A run to do; `key` is the SHA-256 of the configuration and of the `inputs`, role -> SHA-256 of its files."""

    key: str
    configuration: Configuration
    inputs: dict[str, str]


def tasks(configurations: Iterable[Configuration]) -> Iterator[Task]:
    """The configurations with their keys; every file is read once."""
    known: dict[tuple[str, str], str] = {}
    for configuration in configurations:
        named = {role: str(configuration[role]) for role in INPUTS if configuration.get(role)}
        for entry in named.items():
            if entry not in known:
                known[entry] = _digest(*entry)
        inputs = {role: known[role, name] for role, name in named.items()}
        for role, _, value in _parts(configuration):
            if inputs.get(role) and (files := _files_in(value, _path_of(role, named[role]))):
                inputs[value] = sha256(*files)
        canonical = json.dumps(
            {"inputs": inputs, "options": configuration}, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        yield Task(hashlib.sha256(canonical.encode()).hexdigest(), configuration, inputs)


def _digest(role: str, name: str, *, of_job: bool = False) -> str:
    """SHA-256 of an input's files, '' where there are none: that run will say so. No job is itself a file of jobs."""
    from simcore.generate.wse.source import played

    digest = hashlib.sha256()
    try:  # a shipped example, a file, a folder's files, or a set of traces
        path = _path_of(role, name)
        some = path.iterdir() if path.is_dir() else path.parent.glob(f"{glob.escape(path.name)}.*")
        paths = [path] if path.is_file() else sorted(entry for entry in some if entry.is_file())
        paths += played(path) if path.is_dir() else ()
        for each in [*map(str, paths), *_named_by(role, str(path))]:
            digest.update(read_bytes(each))
        for named in named_by(path) if role == "workload" and not of_job else ():
            digest.update(_digest(*named, of_job=True).encode())
    except (InputError, OSError, ValueError):  # a name that no file can have, or a file that may not be read
        return ""
    return digest.hexdigest() if paths else ""


def _path_of(role: str, name: str) -> Path:
    """Where an input is; InputError where a shipped one is meant that there is not."""
    shelf = SHELVES.get(role)
    return library.resolve(name, shelf) if shelf else Path(name)


def _beside(path: Path, value: object, key: str = "") -> str:
    """The file that a text of an input names beside it, or the traces of a job; "" = none."""
    if not isinstance(value, str) or not value:
        return ""
    found = path.parent / value
    there = bool(Path(value).suffix) and library.exists(found) and found.is_file()
    there |= key == "workload" and ((library.exists(found) and found.is_dir()) or library.is_set(found))
    return str(found.resolve()) if there else ""


def _named_by(role: str, path: str) -> Sequence[str]:
    """The further files that a topology (graphs, circuits), a system (schedules) or a specification is made of."""
    with suppress(SimcoreError):  # the run says what is wrong with it
        if role == "workload" and Path(path).suffix in SPECIFICATION_SUFFIXES:
            return _files_in(read(path, Problems()).value, Path(path))
        if role == "topology":
            return simcore.load_topology(path).beside
        if role == "system":
            return [found.location.file for found in config.read(path).schedules()]
    return ()


def _files_in(content: Any, path: Path) -> list[str]:
    """The files that texts in an input may name, beside it or as they stand: who reads it knows which."""
    if isinstance(content, dict | list):
        values = content.values() if isinstance(content, dict) else content
        return [file for value in values for file in _files_in(value, path)]
    return [*dict.fromkeys(filter(None, (_beside(each, content) for each in (path, Path(path.name)))))]


def execute(task: Task) -> Row:
    """Do a run; whatever goes wrong with it becomes its row's error."""
    figures: dict[str, int | float] = {}
    error = ""
    with metered(), TemporaryDirectory(prefix="simcore-sweep-") as folder:  # a run is one part of the whole
        try:
            arguments = _arguments(task.configuration, Path(folder))
            several = named_by(_path_of("workload", arguments["workload"]))
            figures = _figures_of_jobs(arguments) if several else _figures(arguments)
        except SimcoreError as failure:
            error = str(failure).replace(folder, "varied")
        except Exception as failure:  # noqa: BLE001 - one run must not end the others; its row tells what happened
            error = f"{type(failure).__name__}: {failure}".replace(folder, "varied")
    return row_of(task, figures, error)


def _figures(arguments: dict[str, Any]) -> dict[str, int | float]:
    document = simcore.run(**arguments).to_dict()
    shares = cast("dict[str, int]", document["breakdown"])
    price = network_usd(simcore.load_topology(arguments["topology"])) if "topology" in arguments else {}
    of_runs = document["noise"]["time_ns"] if arguments.get("runs", 1) > 1 else {}
    spread = {f"{name}_time_ns": time_ns for name, time_ns in of_runs.items()}
    return {"npus": document["npus"], "time_ns": document["time_ns"], **shares, **price, **spread}


def _figures_of_jobs(arguments: dict[str, Any]) -> dict[str, int | float]:
    """Of a file of jobs: the greatest slowdown, and every job's step alone and beside the others."""
    found = simcore.run_jobs(arguments.pop("workload"), **arguments)
    document, machine = found.to_dict(), found.runs.topology
    figures: dict[str, int | float] = {"npus": machine.npus, "time_ns": document["time_ns"]}
    figures[SLOWDOWN] = max(job["slowdown"] for job in document["jobs"])
    for job in document["jobs"]:
        of_job = {"alone_step_ns": job["alone_step_ns"], "step_ns": job["step_ns"], SLOWDOWN: job["slowdown"]}
        figures |= {f"{job['name']}.{name}": value for name, value in of_job.items()}
    return figures | network_usd(simcore.load_topology(machine.path))  # with gigabytes that no profile changes


def row_of(task: Task, figures: dict[str, int | float], error: str) -> Row:
    """The row of a run: its figures, or why it has none."""
    return Row(
        key=task.key, options=task.configuration, inputs=task.inputs, version=simcore.__version__, figures=figures,
        error=error,
    )  # fmt: skip


def network_usd(topology: Topology) -> dict[str, int]:
    """What a network costs; nothing where no table has a price for it, as for the switch of optical circuits."""
    from simcore.network.topology.cost import USUAL_PRICES, cost_of, read_prices, total_usd
    from simcore.network.topology.links import LinkGraph

    if topology.circuits:
        return {}
    try:
        items = cost_of(LinkGraph(topology), read_prices(USUAL_PRICES))
    except InputError:
        return {}
    return {"network_usd": round(total_usd(items))}


def _arguments(configuration: Configuration, folder: Path) -> dict[str, Any]:
    """The arguments of `simcore.run`; inputs of which a part varies are written anew to `folder`."""
    arguments = {name: value for name, value in configuration.items() if not steps(name)}
    if "workload" not in arguments:
        raise InputError.at("workload", "a workload is needed", expected="workload: NAME in run:, grid: or list:")
    for role in {role: None for role, _, _ in _parts(configuration)}:
        path = folder / f"{role}.yaml"
        path.write_text(json.dumps(_varied(role, configuration), indent=1), encoding="utf-8")
        arguments[role] = str(path)
    return arguments


def _parts(configuration: Configuration) -> Iterator[tuple[str, list[str | int], Any]]:
    """Input, way and value of every part that varies."""
    for name, value in configuration.items():
        if found := steps(name):
            yield *found, value


def _varied(role: str, configuration: Configuration) -> Any:
    """An input file's content with its parts replaced."""
    if not configuration.get(role):
        raise InputError.at(role, f"a part of the {role} varies and no {role} is given", expected=f"{role}: FILE")
    path = _path_of(role, str(configuration[role]))
    if role == "workload" and path.suffix not in SPECIFICATION_SUFFIXES:
        expected = "a generator's specification or a file of jobs (.yaml)"
        raise InputError.at(str(path), "parts of this workload cannot vary", expected=expected, found=path.name)
    with Problems() as problems:
        content = read(path, problems).value
    for owner, way, value in _parts(configuration):
        if owner == role:
            content = replaced(content, way, value, str(path))
    return _led(content, path)


def _led(content: Any, path: Path, key: str = "") -> Any:
    """The content of an input that lies elsewhere than the files that it names."""
    if isinstance(content, dict):
        return {key: _led(value, path, key) for key, value in content.items()}
    if isinstance(content, list):
        return [_led(value, path) for value in content]
    return _beside(path, content, key) or content


def replaced(data: Any, way: Sequence[str | int], value: Any, file: str) -> Any:
    """A copy of plain data with the part at `way` replaced; the last step may be a new key of a mapping.

    >>> replaced({"bandwidth": [50, 25]}, ["bandwidth", 1], 100, "net.yaml")
    {'bandwidth': [50, 100]}
    """
    if not way:
        return value
    step, *rest = way
    if isinstance(step, int) and isinstance(data, list) and step < len(data):
        return [*data[:step], replaced(data[step], rest, value, file), *data[step + 1 :]]
    if isinstance(step, str) and isinstance(data, dict) and (step in data or not rest):
        return {**data, step: replaced(data.get(step), rest, value, file)}
    there = f"0 to {len(data) - 1}" if isinstance(data, list) else ", ".join(data) if isinstance(data, dict) else "none"
    raise InputError.at(file, "there is no such part to vary", expected=f"one of: {there}", found=repr(step))
