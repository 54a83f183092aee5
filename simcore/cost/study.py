"""Studies of `simcore search`: a YAML or JSON file with a model, a cluster, a batch and what may vary.

::

    model: {layers: 96, hidden: 12288, heads: 96, ffn: 49152, vocab: 51200, seq: 2048}
    accelerators: 1024
    global_batch: 1536
    system: selene                   # or {accelerator: H100, fabric: hgx-h100}
    micro_batch: [1, 2, 4]           # these lists are optional
    recompute: [none, selective, full]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from simcore.compute.accelerators import accelerator
from simcore.compute.operations import Transformer
from simcore.cost.job import Cluster, Job, Software
from simcore.cost.search import SCHEDULES, Study
from simcore.cost.systems import CLUSTERS
from simcore.documents import Node, read
from simcore.errors import InputError, Problems
from simcore.system.collectives.nccl import fabric
from simcore.units import parse_bytes

__all__ = ["read_study"]

MOST, MOST_SEQUENCES = 10**6, 10**5  # beyond, a search takes days
_SHAPE = {field.name: field for field in fields(Transformer)}
_NEEDED = tuple(name for name, field in _SHAPE.items() if field.default is MISSING)
_LEVELS = 3
_RECOMPUTE = ["none", "selective", "full"]


def read_study(path: str | Path) -> Study:
    """The study in a file; InputError lists everything wrong with it, each with its place."""
    with Problems() as problems:
        root = read(path, problems)
        optional = (*_VARY, "memory", "dtype", "overlap_gradients", "overlap_pipeline", "gradient_bytes")
        root.keys(required=("model", "accelerators", "global_batch", "system"), optional=optional)
        if problems.found:
            raise InputError(problems.found)
        job = Job(
            model=_model(root["model"]),
            global_batch=root["global_batch"].integer(1, MOST_SEQUENCES),
            dtype=root["dtype"].text() if "dtype" in root else "bf16",
            overlap_gradients="overlap_gradients" in root and root["overlap_gradients"].flag(),
            overlap_pipeline="overlap_pipeline" in root and root["overlap_pipeline"].flag(),
            gradient_bytes=root["gradient_bytes"].number(above=True) if "gradient_bytes" in root else 4.0,
            scatter_pipeline=True,
        )
        cluster = _cluster(root["system"])
        varying = {name: [take(item) for item in root[name].sequence()] for name, take in _VARY.items() if name in root}
        limit = root["memory"].quantity(parse_bytes) if "memory" in root else 0
        study = Study(job, root["accelerators"].integer(1, MOST), cluster, memory_bytes=limit, **varying)
    accelerator(cluster.accelerator).peak(job.dtype)
    return study


def _one_of(choices: list[str]) -> Callable[[Node], Any]:
    return lambda node: node.choice(choices) or choices[0]


def _level(node: Node) -> int:
    """A ZeRO level, 0 to 3."""
    level = node.integer(0)
    if level > _LEVELS:
        node.problem("there is no such ZeRO level", expected=f"0 to {_LEVELS}")
    return level


_VARY: dict[str, Callable[[Node], Any]] = {
    "tp": lambda node: node.integer(1),
    "pp": lambda node: node.integer(1),
    "cp": lambda node: node.integer(1),
    "ep": lambda node: node.integer(1),
    "micro_batch": lambda node: node.integer(1),
    "chunks": lambda node: node.integer(1),
    "zero": _level,
    "recompute": _one_of(_RECOMPUTE),
    "schedule": _one_of(list(SCHEDULES)),
}


def _model(node: Node) -> Transformer:
    """A model from the fields of `Transformer`."""
    node.keys(required=_NEEDED, optional=tuple(name for name in _SHAPE if name not in _NEEDED))
    values: dict[str, Any] = {}
    for name, item in node.mapping():
        kind = str(_SHAPE[name].type) if name in _SHAPE else ""
        if kind == "bool":
            values[name] = item.flag()
        elif kind == "int":
            values[name] = item.integer(1 if name in _NEEDED else 0)
        elif kind:
            values[name] = item.choice(["flash", "unfused"])
    if not set(_NEEDED) <= set(values):
        raise InputError(node.problems.found)
    return Transformer(**values)


def _cluster(node: Node) -> Cluster:
    """A named system, or an accelerator with a fabric and today's software."""
    if isinstance(node.value, str):
        name = node.choice(dict(CLUSTERS))
        return name if isinstance(name, Cluster) else next(iter(CLUSTERS.values()))
    node.keys(required=("accelerator", "fabric"))
    if node.problems.found:
        raise InputError(node.problems.found)
    device = accelerator(node["accelerator"].text())
    return Cluster(device.name, fabric(node["fabric"].text()), Software())
