"""Cases of ASTRA-sim 1.0, made of nothing or drawn at random: as its files say them, in the form of `tests/published`.

Every feature that decides a time in that version can be drawn; a case is a plain dictionary, so that the original can
be run on it too. The same seed gives the same case.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from simcore.api import run
from tests.published.peers import first_generation

__all__ = ["KINDS", "answer", "case", "layer", "machine", "random_case", "system"]

Case = dict[str, Any]
KINDS = {
    "ALLREDUCE": "all-reduce",
    "ALLGATHER": "all-gather",
    "REDUCESCATTER": "reduce-scatter",
    "ALLTOALL": "all-to-all",
}
LOOPS = ("MICRO", "DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "DISTRIBUTED_INFERENCE")
POLICIES = (*LOOPS, "HYBRID_DLRM", "HYBRID_DLRM_ENHANCED")
INTER = ("ascending", "baseline", "roundRobin", "themis", "themisFlex", "offlineGreedy", "offlineGreedyFlex")
INTRA = ("FIFO", "SCF", "RG", "lessRemainingPhaseFirst", "smallestFirst")


def machine(kinds: list[str], npus: list[int], **columns: Any) -> dict[str, Any]:
    """A network file; a column is given whole, or one value for all dimensions."""
    usual = {"links-count": 1, "link-latency": 500, "link-bandwidth": 50, "nic-latency": 0, "router-latency": 0}
    usual |= {"hbm-latency": 500, "hbm-bandwidth": 370, "hbm-scale": 0}
    given = usual | {name.replace("_", "-"): value for name, value in columns.items()}
    lists = {name: value if isinstance(value, list) else [value] * len(npus) for name, value in given.items()}
    head = {"topology-name": "Hierarchical", "topologies-per-dim": kinds, "dimension-type": ["N"] * len(npus)}
    return {**head, "dimensions-count": len(npus), "units-count": npus, **lists}


def system(algorithms: str = "ring", **keys: Any) -> dict[str, Any]:
    """A system file: the same algorithms (one for each dimension) for every kind of collective."""
    usual = {"scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1}
    usual |= {"preferred-dataset-splits": 1, "boost-mode": 0, "collective-optimization": "localBWAware"}
    chosen = {f"{kind}-implementation": algorithms for kind in KINDS.values()}
    return usual | chosen | {name.replace("_", "-"): value for name, value in keys.items()}


def layer(update: int = 1, policy: str = "", **columns: tuple[int, str, int]) -> dict[str, Any]:
    """A row; columns fwd, ig and wg are (compute_ns, type, bytes), by default idle."""
    idle = dict.fromkeys(("fwd", "ig", "wg"), (0, "NONE", 0))
    row: dict[str, Any] = {"name": "row", "reserved": -1, **idle, **columns, "update": update}
    return row | ({"policy": policy} if policy else {})


def case(header: str, layers: list[dict[str, Any]], network: Any, chosen: Any, **options: Any) -> Case:
    """A case; `options` are those of the original's command line."""
    return {"workload": {"header": header, "layers": layers}, "network": network, "system": chosen, "run": options}


def answer(given: Case, **changes: Any) -> dict[str, Any]:
    """The report of a case without what depends on its files and on folding; `changes` are arguments of `run`."""
    with TemporaryDirectory() as folder:
        document = dict(run(**first_generation(given, Path(folder)), **changes).to_dict())
    return {key: value for key, value in document.items() if key not in {"inputs", "classes", "command"}}


def random_case(seed: int, *, most_npus: int = 16) -> Case:
    """Any case whose machine has at most so many NPUs."""
    draw = Random(seed)  # noqa: S311 - a seed gives the same case everywhere
    npus = _sizes(draw, most_npus)
    layers = [_row(draw) for _ in range(draw.randint(1, 4))]
    header = _header(draw, npus, layers)
    if header == "HYBRID_CUSTOMIZED":
        layers = [row | {"policy": draw.choice(POLICIES)} for row in layers]
    options = {"num_passes": draw.choice((1, 1, 2, 3)), "num_queues_per_dim": draw.choice((1, 1, 2, 3))}
    options |= {"comm_scale": draw.choice((1, 1, 0.5)), "compute_scale": draw.choice((1, 1, 1.3))}
    options |= {"injection_scale": draw.choice((1, 1, 2)), "rendezvous_protocol": draw.random() < 0.15}
    return case(header, layers, _network(draw, npus), _system(draw, npus), **options)


def _sizes(draw: Random, most_npus: int) -> list[int]:
    npus = [draw.choice((2, 3, 4, 5, 8))]
    for _ in range(draw.randint(0, 2)):
        fitting = [size for size in (2, 3, 4) if size * prod(npus) <= most_npus]
        npus += [draw.choice(fitting)] if fitting else []
    return npus


def _header(draw: Random, npus: list[int], layers: list[Any]) -> str:
    loop = draw.choice((*LOOPS, "HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_DLRM"))
    loop = draw.choice((loop, loop, loop, "HYBRID_CUSTOMIZED"))
    group = draw.choice((1, npus[0], prod(npus), 2 * prod(npus)))
    last = len(layers) - 1
    if loop == "HYBRID_DLRM":
        return f"{draw.choice((loop, 'HYBRID_DLRM_ENHANCED'))} {draw.randint(0, last)}"
    if not loop.startswith("HYBRID_TRANSFORMER"):
        return loop
    loop = loop if last else "HYBRID_TRANSFORMER"
    recomputed = f" checkpoints: 1 0 checkpoint_initiates: 1 {last}" if loop.endswith("BCKWD") else ""
    return f"{loop} model_parallel_NPU_group: {group}{recomputed}"


def _row(draw: Random) -> dict[str, Any]:
    def column() -> tuple[int, str, int]:
        kind = draw.choice((*KINDS, "NONE"))
        size = draw.choice((64, 1024, 4111, 65536, draw.randint(64, 1 << 21)))
        return draw.choice((0, 10, 5000, 200_000)), kind, size if kind != "NONE" else 0

    return layer(draw.choice((1, 10, 1000)), fwd=column(), ig=column(), wg=column())


def _network(draw: Random, npus: list[int]) -> dict[str, Any]:
    kinds = [draw.choice(("Ring", "FullyConnected", "Switch")) for _ in npus]
    scale = draw.choice((0, 0, 1))
    choices: Mapping[str, tuple[float, ...]] = {
        "link-latency": (0.5, 1, 50, 500, 1500),
        "link-bandwidth": (12.5, 37.7, 50, 200),
        "nic-latency": (0, 0.7, 3),
        "router-latency": (0, 10, 100),
        "hbm-latency": (1, 100, 500),
        "hbm-bandwidth": (13, 370, 1555),
        "hbm-scale": (0, scale, 0.5 * scale),
    }
    columns = {name: [draw.choice(values) for _ in npus] for name, values in choices.items()}
    neighbours = [size - 1 if kind == "FullyConnected" else 2 for kind, size in zip(kinds, npus, strict=True)]
    links = [draw.choice((1, 2)) * count for count in neighbours]
    return machine(kinds, npus, links_count=links, **columns)


def _system(draw: Random, npus: list[int]) -> dict[str, Any]:
    def algorithms(kind: str) -> str:
        names = []
        for size in npus:
            powers = ["halvingDoubling"] if size & (size - 1) == 0 and kind != "ALLTOALL" else []
            trees = ["doubleBinaryTree"] if powers and kind == "ALLREDUCE" and draw.random() < 0.3 else []
            window = draw.randint(1, size - 1)
            names.append(draw.choice(["ring", "direct", f"direct{window}", *powers, *trees]))
        return "_".join(names)

    chosen = system(
        scheduling_policy=draw.choice(("LIFO", "FIFO")),
        endpoint_delay=draw.choice((1, 10, 37)),
        active_chunks_per_dimension=draw.choice((1, 2, 16)),
        preferred_dataset_splits=draw.choice((1, 2, 4, 16)),
        collective_optimization=draw.choice(("localBWAware", "baseline")),
        inter_dimension_scheduling=draw.choice(INTER),
        intra_dimension_scheduling=draw.choice(INTRA),
    )
    bus = {"model-shared-bus": 1, "L": draw.choice((1, 10.7)), "o": draw.choice((1, 3)), "g": 2, "G": 0.0038}
    chosen |= bus if draw.random() < 0.1 else {}
    return chosen | {f"{name}-implementation": algorithms(kind) for kind, name in KINDS.items()}
