"""Studies of `simcore search`: a YAML or JSON file with a model, a cluster, a batch and what may vary.

::

    model: gpt-175b                  # a shipped model, a config.json, or {layers: 96, hidden: 12288, ...}
    seq: 2048
    accelerators: 1024
    global_batch: 1536
    cluster: selene                  # or {accelerator: H100, fabric: hgx-h100}
    micro_batch: [1, 2, 4]           # these lists are optional
    recompute: [none, selective, full]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simcore.compute.accelerators import accelerator
from simcore.cost.search import EVEN, SCHEDULES, UNEVEN, Study
from simcore.cost.words import CHOICES, check_size, read_cluster, read_model
from simcore.documents import Node, read
from simcore.errors import InputError, Problems
from simcore.model.plan import GRADIENT_BYTES, ZERO_LEVELS, Plan
from simcore.units import parse_bytes

MOST, MOST_SEQUENCES, MOST_TOKENS = 10**6, 10**5, 1 << 24  # beyond, a search takes days


def read_study(path: str | Path) -> Study:
    """The study in a file; InputError lists everything wrong with it, each with its place."""
    with Problems() as problems:
        root = read(path, problems)
        needed = ("model", "seq", "accelerators", "global_batch", "cluster")
        root.keys(required=needed, optional=(*_VARY, *_FIXED, "memory"))
        if problems.found:
            raise InputError(problems.found)
        fixed = {name: take(root[name]) for name, take in _FIXED.items() if name in root}
        count = root["accelerators"].integer(1, MOST)
        batch, seq = root["global_batch"].integer(1, MOST_SEQUENCES), root["seq"].integer(1, MOST_TOKENS)
        model, cluster = read_model(root["model"]), read_cluster(root["cluster"])
        usual: dict[str, Any] = {
            "scatter_pipeline": True,
            "context": "ring",
            "dtype": accelerator(cluster.accelerator).wide_dtype,
        }
        plan = Plan(count, seq, global_batch=batch, **(usual | fixed))
        varying = {name: [take(item) for item in root[name].sequence()] for name, take in _VARY.items() if name in root}
        limit = root["memory"].quantity(parse_bytes) if "memory" in root else 0
        model_name, cluster_name = (
            node.value if isinstance(node.value, str) else "" for node in (root["model"], root["cluster"])
        )
        names = model_name, cluster_name
        study = Study(model, plan, count, cluster, memory_bytes=limit, names=names, **varying)
    accelerator(cluster.accelerator).peak(plan.dtype)
    check_size(cluster, count)
    return study


def _among(numbers: Sequence[int]) -> Callable[[Node], int]:
    def read_number(node: Node) -> int:
        number = node.integer(0)
        if number not in numbers:
            node.problem("there is no such choice", expected=", ".join(map(str, numbers)))
        return number

    return read_number


def _one_of(choices: list[str]) -> Callable[[Node], Any]:
    return lambda node: node.choice(choices) or choices[0]


_VARY: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(("tp", "pp", "cp", "ep", "micro_batch", "virtual_stages"), lambda node: node.integer(1)),
    **dict.fromkeys(("shard", "recompute_layers"), Node.integer),
    "zero": _among(ZERO_LEVELS),
    "recompute": _one_of(CHOICES["recompute"]),
    "schedule": _one_of(list(SCHEDULES)),
    "cuts": _one_of([EVEN, UNEVEN]),
}
_FIXED: dict[str, Callable[[Node], Any]] = {
    **dict.fromkeys(("overlap", "overlap_pipeline", "scatter_pipeline", "fused_attention", "dropout"), Node.flag),
    "gradients_apart": Node.flag,
    "recompute_modules": lambda node: tuple(_one_of(CHOICES["recompute_modules"])(item) for item in node.sequence()),
    "gradient_bytes": _among(GRADIENT_BYTES),
    "dtype": _one_of(CHOICES["dtype"]),
    "context": _one_of(CHOICES["context"]),
}
