"""Clusters, software and kinds of run by name, as `software.json` beside this file describes them, with sources.

A software profile says what a framework makes of measured kernels and collectives (`Software`, `Loop`); `like` names
one whose other fields it shares. A cluster is accelerators, a fabric and a software profile; what a cluster states of a
software's fields is its site's. Fabrics are in `simcore.system.collectives.nccl`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simcore.cost.cluster import Cluster, Software
from simcore.errors import InputError, closest
from simcore.system.collectives.nccl import FABRICS, Fabric

TABLE: Mapping[str, Any] = json.loads((Path(__file__).parent / "software.json").read_text(encoding="utf-8"))


def profile(table: Mapping[str, Mapping[str, Any]], name: str) -> Software:
    """A profile of a table, with what it shares with others."""
    stated = dict(table[name])
    base = profile(table, stated.pop("like")) if "like" in stated else Software()
    return _with(base, {field: value for field, value in stated.items() if field not in ("source", "on")})


def _with(base: Software, stated: Mapping[str, Any]) -> Software:
    """A profile with other values of the fields that are stated; those of kernels are a mapping of its own."""
    fields = dict(stated)
    if "kernels" in fields:
        fields["kernels"] = replace(base.kernels, **fields["kernels"])
    return replace(base, **fields)


def clusters(table: Mapping[str, Any] = TABLE) -> dict[str, Cluster]:
    """All clusters of a table of the form of `software.json`."""
    found = {}
    for name, stated in table["clusters"].items():
        site = dict(stated)
        device, fabric_name, software_name = (site.pop(key) for key in ("accelerator", "fabric", "software"))
        losses = table["runs"][site.pop("run", "benchmark")]["losses"]
        site.pop("source", None)
        made = _with(profile(table["software"], software_name), site)
        found[name] = Cluster(device, FABRICS[fabric_name], made, losses)
    return found


SOFTWARE: dict[str, Software] = {name: profile(TABLE["software"], name) for name in TABLE["software"]}
CLUSTERS = clusters()
RUNS: dict[str, float] = {name: run["losses"] for name, run in TABLE["runs"].items()}


def software(name: str, maker: str = "") -> Software:
    """A software profile, or what stands for it `on` a maker's devices; InputError names the nearest."""
    if name not in SOFTWARE:
        raise InputError.at(name, "no such software", expected=closest(name, SOFTWARE), found=repr(name))
    at = name
    while at and maker not in TABLE["software"][at].get("on", ()):
        at = TABLE["software"][at].get("like", "")
    return SOFTWARE[TABLE["software"][at]["on"][maker] if at else name]


# What a hardware description must contain -> the fabric its collectives are timed with; the first match counts. An
# interconnect nobody described here is taken for the last one.
_DESCRIPTIONS: tuple[tuple[str, str], ...] = (
    ("Azure", "azure-a100"),
    ("V100", "hgx-v100"),
    ("H200", "hgx-h200"),
    ("H100", "hgx-h100"),
    ("B200", "efa-b200"),
    ("MI300X", "mi300x"),
    ("", "dgx-a100"),
)


def fabric_of(hardware: str) -> Fabric:
    """The fabric a collective table's hardware text means; no NVLS where it says that NCCL was held to rings."""
    name = next(name for word, name in _DESCRIPTIONS if word in hardware)
    return replace(FABRICS[name], multicast_ranks=1 << 30) if "forced to ring" in hardware else FABRICS[name]
