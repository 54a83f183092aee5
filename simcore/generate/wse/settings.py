"""How a wafer runs a model, from `system.json`: degrees, who holds what, which layers and nodes are made."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from simcore.documents import Node, read
from simcore.errors import InputError, Location, Problems, closest
from simcore.model.shape import Model
from simcore.units import parse_spans

Ints = npt.NDArray[np.int64]


class System(Struct, frozen=True):
    """Nodes on a grid and the degrees of parallelism of one phase (prefill or decode).

    Ranks count, innermost first, tensor (tp), sequence (sp), data (dp), pipeline (pp) for attention and tensor,
    expert (ep), data (dp_ffn), pipeline for the feed-forward part: copies of the experts serve their nodes' batches.
    """

    nodes: int
    node_grid: tuple[int, int]
    core_grid: tuple[int, int]
    dp: int
    tp: int
    sp: int
    pp: int
    tp_ffn: int
    ep: int
    shared_copies: int
    routing: str
    exchange: str
    dp_ffn: int = 1

    @property
    def replica_nodes(self) -> int:
        """Nodes that hold one copy of the experts."""
        return self.stage_nodes // self.dp_ffn

    @property
    def stage_nodes(self) -> int:
        """Nodes of one pipeline stage."""
        return self.nodes // self.pp

    @property
    def cluster_nodes(self) -> int:
        """Nodes that hold the same batches: tensor times sequence parallel."""
        return self.tp * self.sp

    @property
    def cores(self) -> int:
        """Cores of one node."""
        return prod(self.core_grid)


# Field of `System` -> key of the file.
DEGREES = {"nodes": "num_nodes", "dp": "dp_attn", "tp": "tp_attn", "shared_copies": "n_redundant_shared_exp"}
DEGREES |= {name: name for name in ("sp", "pp", "dp_ffn", "tp_ffn", "ep")}
GRIDS = ("node_grid", "core_grid")
MOST_CORES = 1 << 15  # of a node: the number of a bank has 16 bits
COUNTED = "empirical_mmlu"
ROUTING = ["identical", "uniform", COUNTED]
EXCHANGES = ["alltoall", "allgather", "multicast"]


def _grid(node: Node) -> tuple[int, int]:
    """[rows, columns]."""
    numbers = [item.integer(1) for item in node.sequence()]
    if len(numbers) != 2:
        node.problem(f"{node.name} must be two numbers", expected="[rows, columns]", found=str(node.value))
        return (1, 1)
    return (numbers[0], numbers[1])


def read_system(path: str | Path, phase: str) -> System:
    """The settings of `phase`, "prefill", "decode" or "train" (by default those of prefill, then decode), in a
    `system.json`; InputError for unknown or missing keys and for degrees that do not fit together.
    """
    with Problems() as problems:
        root = read(path, problems)
        root.keys(optional=("prefill", "decode", "train"))
        if trains := phase == "train":
            phase = next((name for name in ("train", "prefill") if name in root), "decode")
        if phase not in root:
            place, expected = Location(str(path), 1, 1), f'"{phase}": {{"num_nodes": ...}}'
            raise InputError.at(place, f"there is no '{phase}' part", expected=expected)
        part = root[phase]
        part.keys(required=(*DEGREES.values(), *GRIDS, "expert_workload_model", "moe_comm"))
        if problems.found:
            raise InputError(problems.found)
        degrees = {key: part[key].integer(1) for key in DEGREES.values()}
        grids = {key: _grid(part[key]) for key in GRIDS}
        if (cores := prod(grids["core_grid"])) > MOST_CORES:
            part["core_grid"].problem("more cores than a node may have", f"at most {MOST_CORES:,}", f"{cores:,}")
        routing, exchange = part["expert_workload_model"].choice(ROUTING), part["moe_comm"].choice(EXCHANGES)
        if not problems.found:
            _check(part, degrees, grids["node_grid"], trains=trains)
    sizes: dict[str, Any] = {field: degrees[key] for field, key in DEGREES.items()}
    return System(**sizes | grids, routing=str(routing), exchange=str(exchange))


def _check(part: Node, degrees: dict[str, int], grid: tuple[int, int], *, trains: bool) -> None:
    """Note every rule that the degrees break; `part` has the place of each."""
    nodes = degrees["num_nodes"]
    stage = nodes // degrees["pp"]
    attention = degrees["dp_attn"] * degrees["tp_attn"] * degrees["sp"] * degrees["pp"]
    feed_forward = degrees["dp_ffn"] * degrees["tp_ffn"] * degrees["ep"] * degrees["pp"]
    replica, copies = stage // degrees["dp_ffn"], degrees["n_redundant_shared_exp"]
    full = replica in {degrees["ep"], degrees["tp_ffn"]}
    whole = replica % (degrees["tp_attn"] * degrees["sp"]) == 0 and (degrees["tp_ffn"] == 1 or replica == stage)
    rules = [
        (prod(grid) == nodes, "node_grid", f"rows x columns = num_nodes = {nodes}"),
        (attention == nodes, "dp_attn", f"dp_attn * tp_attn * sp * pp = num_nodes = {nodes}"),
        (degrees["dp_ffn"] == 1 or whole, "dp_ffn", "tp_ffn = 1, and ep a multiple of tp_attn * sp"),
        (degrees["dp_ffn"] == 1 or not trains, "dp_ffn", "1 in a training step"),
        (feed_forward == nodes, "ep", f"dp_ffn * tp_ffn * ep * pp = num_nodes = {nodes}"),
        (degrees["ep"] == 1 or degrees["tp_ffn"] == 1, "tp_ffn", "1 when ep > 1"),
        (full, "ep", f"ep or tp_ffn equal to the nodes of a pipeline stage over dp_ffn, {replica}"),
        (copies <= replica, "n_redundant_shared_exp", f"at most one copy a node, {replica}"),
        (degrees["tp_ffn"] == 1 or copies == 1, "n_redundant_shared_exp", "1 when the experts are tensor parallel"),
    ]
    for kept, key, expected in rules:
        if not kept:
            part[key].problem(f"{key} does not fit the other degrees", expected=expected)


def parse_layers(text: str, model: Model) -> list[str]:
    """The layers of `--layers` in the order of the model: "all", or names such as `decode0`, `lm_head`.

    >>> parse_layers("lm_head,decode0", Model("small", 2, 8, 1, 8, 16))
    ['decode0', 'lm_head']
    """
    known = [*(f"decode{layer}" for layer in range(model.layers)), "lm_head"]
    if text == "all":
        return known
    chosen = {name.strip() for name in text.split(",")}
    if unknown := sorted(chosen - set(known)):
        expected = closest(unknown[0], known) if len(known) < 9 else f"all, or of decode0 ... {known[-2]}, lm_head"
        raise InputError.at("--layers", "no such layer in this model", expected=expected, found=repr(unknown[0]))
    return [name for name in known if name in chosen]


def parse_nodes(text: str, count: int) -> list[int]:
    """The nodes of `--nodes`: "all" or compact ranges.

    >>> parse_nodes("0-2,5", 8), parse_nodes("all", 3)
    ([0, 1, 2, 5], [0, 1, 2])
    """
    if text == "all":
        return list(range(count))
    try:
        nodes = sorted({node for span in parse_spans(text) for node in span[: count + 1]})
    except ValueError:
        nodes = []
    if not nodes or nodes[-1] >= count:
        expected = f"all, or ranges of 0 ... {count - 1}: 0-3,5"
        raise InputError.at("--nodes", "no such node", expected=expected, found=repr(text))
    return nodes


def split(count: int, buckets: int) -> list[range]:
    """`count` items in contiguous buckets; the first `count % buckets` get one more.

    >>> split(5, 3)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    share, more = divmod(count, buckets)
    starts = [bucket * share + min(bucket, more) for bucket in range(buckets + 1)]
    return [range(first, last) for first, last in pairwise(starts)]


class Groups(NamedTuple):
    """The nodes that are with a node, itself among them, ascending.

    `tp` and `sp` are its tensor and sequence parallel peers in attention, `dp` those in the same place of the other
    data parallel clusters. `replicas` have the same weights of attention in the stage, `cluster` the same batches,
    `stage` is that of the pipeline, `copy` holds the same copy of the experts.
    """

    tp: tuple[int, ...]
    sp: tuple[int, ...]
    dp: tuple[int, ...]
    replicas: tuple[int, ...]
    cluster: tuple[int, ...]
    stage: tuple[int, ...]
    copy: tuple[int, ...]


def groups(system: System, node: int) -> Groups:
    """Those that differ from `node` only in the coordinate of a stride and degree."""

    def along(stride: int, degree: int) -> tuple[int, ...]:
        first = node - (node // stride % degree) * stride
        return tuple(range(first, first + stride * degree, stride))

    tp, sp, dp, cluster = system.tp, system.sp, system.dp, system.cluster_nodes
    larger = along(1, cluster), along(1, system.stage_nodes), along(1, system.replica_nodes)
    return Groups(along(1, tp), along(tp, sp), along(cluster, dp), along(tp, sp * dp), *larger)


def local_batches(system: System, batch: int, node: int) -> range:
    """The sequences that attention on `node` works on."""
    return split(batch, system.dp)[node % system.stage_nodes // system.cluster_nodes]


def own_batches(system: System, batch: int, node: int) -> range:
    """Those of its cluster's sequences that `node` sends to the experts."""
    local = local_batches(system, batch, node)
    own = split(len(local), system.cluster_nodes)[node % system.cluster_nodes]
    return local[own.start : own.stop]


def dispatch_sources(system: System, batch: int) -> Ints:
    """Place in the stage of the node that sends each sequence to the experts: shape [batch]."""
    owned = [len(own_batches(system, batch, node)) for node in range(system.stage_nodes)]
    return np.repeat(np.arange(system.stage_nodes), owned)


def expert_nodes(system: System, experts: int) -> Ints:
    """Place in its copy of the experts of the node that holds each routed expert: shape [experts]."""
    return np.repeat(np.arange(system.ep), [len(held) for held in split(experts, system.ep)])


def shared_nodes(system: System, batch: int) -> Ints:
    """Place among its nodes of the copy of the shared expert that serves each sequence: shape [batch].

    Copies stand `replica_nodes // copies` apart and are chosen by the number of the sequence, not by distance.
    """
    apart = system.replica_nodes // system.shared_copies
    served = [len(served) for served in split(batch, system.shared_copies)]
    return np.repeat(np.arange(system.shared_copies) * apart, served)
