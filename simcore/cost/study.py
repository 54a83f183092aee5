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

from dataclasses import fields
from pathlib import Path
from typing import Any

from simcore.cost.search import AXES, EVEN, SCHEDULES, UNEVEN, Study
from simcore.cost.words import acting, check_size, plan_word, read_cluster, read_model
from simcore.documents import read
from simcore.errors import InputError, Problems
from simcore.model.plan import Plan
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
        fixed = {name: plan_word(name, root[name]) for name in _FIXED if name in root}
        count = root["accelerators"].integer(1, MOST)
        batch, seq = root["global_batch"].integer(1, MOST_SEQUENCES), root["seq"].integer(1, MOST_TOKENS)
        model, cluster = read_model(root["model"]), read_cluster(root["cluster"])
        usual: dict[str, Any] = {
            "scatter_pipeline": True,
            "context": "ring",
            "dtype": cluster.device.wide_dtype,
        }
        plan = Plan(count, seq, global_batch=batch, **(usual | fixed))
        for name, acts, meant in acting(model, plan):
            if name in fixed and not acts and not name.startswith("recompute"):  # that varies
                root[name].problem("has no effect here", expected=meant)
        varying = {
            name: [plan_word(name, item, _CHOICES.get(name)) for item in root[name].sequence()]
            for name in _VARY
            if name in root
        }
        limit = root["memory"].quantity(parse_bytes) if "memory" in root else 0
        model_name, cluster_name = (
            node.value if isinstance(node.value, str) else "" for node in (root["model"], root["cluster"])
        )
        names = model_name, cluster_name
        study = Study(model, plan, count, cluster, memory_bytes=limit, names=names, **varying)
    cluster.device.peak(plan.dtype)
    check_size(cluster, count)
    return study


# Where a study may say less than a plan, or other words.
_CHOICES = {"schedule": list(SCHEDULES), "cuts": [EVEN, UNEVEN]}
_VARY = tuple(name for name in AXES if name != "dp")  # that follows
_GIVEN = ("world_size", "seq", "global_batch", "sequence_parallel", "expert_tp")
_FIXED = [field.name for field in fields(Plan) if field.name not in (*_VARY, *_GIVEN)]
