"""The system layer's settings, read from ASTRA-sim 2.x JSON/YAML or ASTRA-sim 1.0 `key: value` text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simcore import documents
from simcore.documents import Node
from simcore.errors import InputError, Location, Problem, Problems, closest
from simcore.peers import refuse_foreign
from simcore.system.chunks.scheduler import GANG_ORDERS, INSERTION
from simcore.system.collectives import EVERYBODY, NCCL, ROOTED, Algorithm, algorithms, traits_of
from simcore.system.collectives.nccl import Fabric, read_fabric
from simcore.system.memory import BusCosts
from simcore.system.plans import schedule
from simcore.workload.model import CollectiveKind

MOST_SPLITS = 4096  # every chunk is a collective of its own: more of them cost time and change nothing
# Algorithms on all NPUs as one dimension, in the order of their ids or of a tour of a plane (`network.topology.tours`).
WHOLE_MACHINE = {
    "oneRing": ("ring", ""),
    "oneDirect": ("direct", ""),
    "oneHalvingDoubling": ("halvingDoubling", ""),
    "oneSynthesised": ("synthesised", ""),
    "oneMulticast": ("multicast", ""),
    "snakeRing": ("ring", "snake"),
    "bidirectionalSnakeRing": ("bidirectionalRing", "snake"),
    "hamiltonianRing": ("ring", "hamiltonian"),
    "bidirectionalHamiltonianRing": ("bidirectionalRing", "hamiltonian"),
}
_STRUCTURED = re.compile(r"^\s*[-{[%]|:\s*\[", re.MULTILINE)  # in JSON and YAML, not in 1.0's `key: value` lines
_NUMBERED = re.compile(r"(.*?)([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """Settings under ASTRA-sim's meaning; times in ns, `local_memory_bytes_per_s` in bytes per second.

    `implementations` gives one algorithm per dimension for each collective; a collective that is not there is left to
    the profile, a dimension past the list is not used. With a `fabric`, collectives are NCCL's on that system. `custom`
    are prefixes of execution traces that are played in a collective's place, `custom_nodes` those of single nodes, by
    node id.
    `switch_latency_ns` and `switch_bytes_per_s` are those of reductions in a switch (0: as fast as the bytes come).
    `logs` are keys that ask for files that nothing here writes.
    """

    scheduling_policy: str = "LIFO"
    endpoint_delay_ns: int | None = None
    active_chunks_per_dimension: int = 1
    preferred_dataset_splits: int = 4
    implementations: Mapping[CollectiveKind, tuple[Algorithm, ...]] = field(default_factory=dict)
    custom: Mapping[CollectiveKind, str] = field(default_factory=dict)
    custom_nodes: Mapping[int, str] = field(default_factory=dict)
    collective_optimization: str = "localBWAware"
    intra_dimension_scheduling: str = "FIFO"
    inter_dimension_scheduling: str = "ascending"
    local_memory_bytes_per_s: float = 0.0
    roofline: bool = False
    peak_flops: float = 0.0
    replay_only: bool = False
    fabric: Fabric | None = None
    bus: BusCosts | None = None
    switch_latency_ns: int = 0
    switch_bytes_per_s: float = 0.0
    logs: tuple[str, ...] = field(default=(), compare=False)
    locations: Mapping[str, Location] = field(default_factory=dict, compare=False)

    def refuse_native(self, profile: str) -> None:
        """InputError when a collective uses an algorithm, or an order, that ASTRA-sim's profiles do not have."""
        for kind, chosen in self.implementations.items():
            for algorithm in chosen:
                if algorithm.schedule or algorithm.tour or algorithm.name == NCCL or algorithm.traits.native:
                    place = algorithm.location or self.at(f"{kind.replace('_', '-')}-implementation")
                    message = f"profile {profile} has no algorithm '{algorithm.name}'"
                    known = ", ".join(sorted(name for name in algorithms if not traits_of(name).native))
                    raise InputError.at(place, message, expected=known, found=algorithm.name)
        if self.inter_dimension_scheduling == "colours":
            place = self.at("inter-dimension-scheduling")
            raise InputError.at(place, f"profile {profile} has no colours", expected="roundRobin", found="colours")

    def schedules(self) -> list[schedule.Schedule]:
        """The schedules that are used, each file once."""
        chosen = [algorithm.schedule for algorithms in self.implementations.values() for algorithm in algorithms]
        return list({found.location.file: found for found in chosen if found}.values())

    def at(self, key: str) -> Location:
        """Where a key stands in the system file."""
        return self.locations.get(key, Location("--system"))


Parse = Callable[[Node], object]


def _prefix(node: Node) -> str:
    """The prefix of PREFIX.RANK.et, alone or as the only one of a list; beside the system file, or where we are."""
    items = node.sequence() if isinstance(node.value, list) else [node]
    if len(items) != 1:
        node.problem(f"{node.name} must name one set of traces", expected="[PREFIX] of PREFIX.RANK.et")
        return ""
    return items[0].path()


def _node_prefixes(node: Node) -> dict[int, str]:
    """Prefixes by node id, from the YAML file that the key names."""
    if not node.value:
        return {}
    found = {}
    for key, item in documents.read(node.path(), node.problems).mapping():
        if key.isascii() and key.isdecimal():
            found[int(key)] = item.path()
        else:
            item.problem(f"'{key}' is no node id", expected="the id of a node and the prefix of its traces: 3: my_ring")
    return found


def _choice(*names: str, **synonyms: str) -> Parse:
    """One of some names, or of other words for them."""
    meanings = dict.fromkeys(names) | synonyms
    known = {name: meaning or name for name, meaning in meanings.items()}
    return lambda node: node.choice(known)


def _chunk_order(node: Node) -> object:
    """The order of chunks of some profile."""
    return _choice(*INSERTION, *GANG_ORDERS, smallestFirst="SCF")(node)


def _number(factor: float) -> Parse:
    """A number above 0 in units of so much."""
    return lambda node: node.number(above=True) * factor


_LOGS = ("trace-enabled", "track-local-mem")
# Key of the file -> (field, how its node is read). Those without a field change no result here: checked and dropped.
_FIELDS: dict[str, tuple[str, Parse]] = {
    "scheduling-policy": ("scheduling_policy", _choice("LIFO", "FIFO", "EXPLICIT")),
    "endpoint-delay": ("endpoint_delay_ns", Node.integer),
    "active-chunks-per-dimension": ("active_chunks_per_dimension", lambda node: node.integer(1)),
    "preferred-dataset-splits": ("preferred_dataset_splits", lambda node: node.integer(1, MOST_SPLITS)),
    "collective-optimization": (
        "collective_optimization", _choice("baseline", "localBWAware", blueConnect="localBWAware", rail="localBWAware")
    ),
    "intra-dimension-scheduling": ("intra_dimension_scheduling", _chunk_order),
    "inter-dimension-scheduling": (
        "inter_dimension_scheduling",
        _choice(
            "ascending", "roundRobin", "colours", "themis", "themisFlex",
            baseline="ascending", colors="colours", offlineGreedy="themis", offlineGreedyFlex="themisFlex",
        ),
    ),
    "local-mem-bw": ("local_memory_bytes_per_s", _number(1e9)),
    "in-network-latency": ("switch_latency_ns", Node.integer),
    "in-network-bw": ("switch_bytes_per_s", _number(1e9)),
    "roofline-enabled": ("roofline", Node.flag),
    "peak-perf": ("peak_flops", _number(1e12)),
    "replay-only": ("replay_only", Node.flag),
    "per-node-custom-implementation": ("custom_nodes", _node_prefixes),
    **dict.fromkeys(("boost-mode", "seprate-log", *_LOGS), ("", Node.flag)),
    "local-mem-trace-filename": ("", Node.text),
}  # fmt: skip
# Keys of the shared memory bus -> (field of `BusCosts`, how its node is read); ASTRA-sim keeps G in single precision.
_BUS: dict[str, tuple[str, Callable[[Node], float]]] = {
    "L": ("latency_ns", lambda node: int(node.number())),
    "o": ("overhead_ns", lambda node: int(node.number())),
    "g": ("gap_ns", lambda node: int(node.number())),
    "G": ("ns_per_byte", lambda node: float(np.float32(node.number()))),
    "local-reduction-delay": ("reduction_ns", lambda node: int(node.number())),
}
_BUS_SWITCH = "model-shared-bus"
_LISTS = {f"{kind.replace('_', '-')}-implementation": kind for kind in (*EVERYBODY, *ROOTED)}
_CUSTOM = {f"{kind.replace('_', '-')}-implementation-custom": kind for kind in EVERYBODY}
_NCCL = ("collectives", "nccl-fabric")
_SCHEDULING = ("preferred-dataset-splits", "collective-optimization", "inter-dimension-scheduling", "endpoint-delay")
KEYS = (*_NCCL, *_FIELDS, *_BUS, _BUS_SWITCH, *_LISTS, *_CUSTOM)


def read(path: str | Path) -> SystemConfig:
    """Read a system file of either generation; InputError lists everything that is wrong with it."""
    text = documents.read_text(path)
    with Problems() as problems:
        made = documents.parse if _STRUCTURED.search(text) else _key_values
        return _config(made(text, str(path), problems))


def _key_values(text: str, file: str, problems: Problems) -> Node:
    """ASTRA-sim 1.0's `key: value` lines; a list of algorithms is written with underscores."""
    refuse_foreign(text, file, ("scheduling-policy",))
    lines = text.splitlines()
    if not text.strip():
        raise InputError.at(Location(file, 1, 1), "the file is empty", expected="key: value lines")
    for number, line in enumerate(lines, 1):
        key, colon, value = line.partition(":")
        if line.strip() and not line.lstrip().startswith("#") and not (colon and value.strip()):
            message = "this line must be `key: value`"
            place = Location(file, number, len(key) + 2 if colon else 1)
            problems.add(Problem(place, message, "a value after the colon", repr(line.strip()), source=line))
    if problems.found:
        raise InputError(problems.found)
    return documents.parse(text, file, problems)


def _config(root: Node) -> SystemConfig:
    root.keys(optional=KEYS)
    there = list(root.mapping())
    values = {_FIELDS[key][0]: _FIELDS[key][1](node) for key, node in there if key in _FIELDS}
    values.pop("", None)
    bus = {_BUS[key][0]: _BUS[key][1](node) for key, node in there if key in _BUS}
    if _BUS_SWITCH in root and root[_BUS_SWITCH].flag():
        values["bus"] = BusCosts(**bus)  # type: ignore[arg-type]  # the table keeps each field's own type
    values["implementations"] = {_LISTS[key]: _algorithms(node, _LISTS[key]) for key, node in there if key in _LISTS}
    values["custom"] = {_CUSTOM[key]: _prefix(node) for key, node in there if key in _CUSTOM}
    values["logs"] = tuple(key for key in _LOGS if key in root and root[key].value)
    locations = {key: node.location for key, node in there}
    if "collectives" in root or "nccl-fabric" in root:
        everywhere = (Algorithm(NCCL, location=locations.get("collectives")),)
        values |= {**_nccl(root), "implementations": dict.fromkeys(CollectiveKind, everywhere)}
    return SystemConfig(**values, locations=locations)  # type: ignore[arg-type]


def _nccl(root: Node) -> dict[str, object]:
    """Settings with `collectives: nccl`: one chunk, as NCCL pipelines within it."""
    for key in _NCCL:
        if key not in root:
            root.problem(f"NCCL's collectives need '{key}' too", "collectives: nccl and nccl-fabric: a measured system")
            return {}
    root["collectives"].choice([NCCL])
    for key, node in root.mapping():
        if key in (*_LISTS, *_SCHEDULING):  # NCCL decides this for itself
            node.problem(f"'{key}' has no meaning with collectives: nccl", "the key left out")
    return {"fabric": read_fabric(root["nccl-fabric"]), "preferred_dataset_splits": 1}


def _algorithms(node: Node, kind: CollectiveKind) -> tuple[Algorithm, ...]:
    """One algorithm per dimension: a list, or 1.0's names joined with underscores."""
    if isinstance(node.value, str):
        made = [_algorithm(node, name, kind) for name in node.value.split("_")]
    else:
        made = [
            _schedule(item, kind) if isinstance(item.value, dict) else _algorithm(item, str(item.value), kind)
            for item in node.sequence()
        ]
        if node.value == []:
            node.problem(f"{node.name} is empty", expected="an algorithm for every dimension")
    return tuple(algorithm for algorithm in made if algorithm)


def _schedule(node: Node, kind: CollectiveKind) -> Algorithm | None:
    """`{schedule: FILE}`, beside the system file; with `whole-machine: true` for all NPUs as one dimension."""
    node.keys(required=("schedule",), optional=("whole-machine",))
    if "schedule" not in node:
        return None
    whole = "whole-machine" in node and node["whole-machine"].flag()
    found = node["schedule"].meant(lambda name: schedule.read(Path(node.file).parent / name))
    if found.claim.kind != kind:
        node["schedule"].problem(f"the schedule is for {found.claim.kind}", expected=f"one for {kind}")
    return Algorithm("schedule", 0, whole, found, location=node.location)


def _algorithm(node: Node, name: str, kind: CollectiveKind) -> Algorithm | None:
    """`ring`, `direct`, `direct4` (window 4), the other names, and the one* variants."""
    window, number = 0, _NUMBERED.fullmatch(name)
    if number and traits_of(WHOLE_MACHINE.get(number[1], (number[1],))[0]).windowed:
        name, window = number[1], int(number[2])
    plain, tour = WHOLE_MACHINE.get(name, (name, ""))
    if plain not in algorithms:
        known = [*algorithms, *WHOLE_MACHINE, "direct4"]
        hint = "a file with a schedule or program is {schedule: FILE}" if "." in name else ""
        node.problem(f"'{name}' is no collective algorithm", expected=closest(name, known), hint=hint)
        return None
    possible = traits_of(plain).kinds
    if kind not in possible:
        able = "binomial, chain or flat" if kind in ROOTED else "ring or direct"
        node.problem(f"{name} cannot do {kind}", expected=f"{name} for {' or '.join(possible)}, or {able}")
        return None
    return Algorithm(plain, window, name in WHOLE_MACHINE, tour=tour, location=node.location)
