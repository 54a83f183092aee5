"""The files of ASTRA-sim cases: 1.0's text, JSON and `key: value`, 2.x's YAML, JSON and execution traces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from simcore.workload.chakra import writer
from simcore.workload.chakra.convert import conversion
from simcore.workload.model import NodeKind

COLLECTIVES = {"ALL_REDUCE": 0, "ALL_GATHER": 2, "BROADCAST": 5, "ALL_TO_ALL": 6, "REDUCE_SCATTER": 7, "BARRIER": 9}
TYPES = {
    "INVALID": NodeKind.INVALID,
    "COMP": NodeKind.COMPUTE,
    "COMM_COLL": NodeKind.COLLECTIVE,
    "COMM_SEND": NodeKind.SEND,
    "COMM_RECV": NodeKind.RECV,
    "MEM_LOAD": NodeKind.MEM_LOAD,
    "MEM_STORE": NodeKind.MEM_STORE,
}
ATTRIBUTES = {
    "is_cpu_op": "is_cpu_op",
    "num_ops": "num_ops",
    "tensor_size": "tensor_size",
    "bytes": "comm_size",
    "src": "comm_src",
    "dst": "comm_dst",
    "tag": "comm_tag",
    "priority": "comm_priority",
    "involved_dim": "involved_dim",
}
OPTIONS = {
    "num_passes": "iterations",
    "num_queues_per_dim": "queues_per_dim",
    "num-queues-per-dim": "queues_per_dim",
    "comm_scale": "comm_scale",
    "compute_scale": "compute_scale",
    "injection_scale": "injection_scale",
    "comm-scale": "comm_scale",
    "compute-scale": "compute_scale",
    "injection-scale": "injection_scale",
}
PHASES = {"fwd": "forward", "ig": "input_grad", "wg": "weight_grad"}


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `simcore.api.run`."""
    found = {OPTIONS[key]: value for key, value in given.items() if key in OPTIONS}
    asks = [str(given[key]).lower() for key in ("rendezvous_protocol", "rendezvous-protocol") if key in given]
    return found | {"rendezvous": "true" in asks}


def write_text(path: Path, header: str, rows: Sequence[Sequence[object]]) -> str:
    """A 12-column file."""
    path.write_text("\n".join([header, str(len(rows)), *("\t".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def write_json(path: Path, content: object) -> str:
    """A JSON file."""
    path.write_text(json.dumps(content))
    return str(path)


def first_generation(case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Files of a 1.0 case; the arguments of `simcore.api.run`."""
    rows = [
        [layer["name"], layer["reserved"], *layer["fwd"], *layer["ig"], *layer["wg"], layer["update"]]
        + ([layer["policy"]] if "policy" in layer else [])
        for layer in case["workload"]["layers"]
    ]
    system = folder / "system.txt"
    system.write_text("".join(f"{key}: {value}\n" for key, value in case["system"].items()))
    return {
        "workload": write_text(folder / "workload.txt", case["workload"]["header"], rows),
        "topology": write_json(folder / "network.json", case["network"]),
        "system": str(system),
        "profile": "astra-sim-1.0",
        **options(case["run"]),
    }


def second_generation(case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Files of a 2.x case; the arguments of `simcore.api.run`."""
    dims = case["topology"]["dims"]
    keys = {"topology": "type", "npus_count": "npus", "bandwidth": "bandwidth_GBps", "latency": "latency_ns"}
    network = {name: [dim[key] for dim in dims] for name, key in keys.items()}
    aware = case["backend"] == "congestion_aware"
    found = {
        "workload": _traces(case["workload"], prod(dim["npus"] for dim in dims), folder),
        "topology": write_json(folder / "network.yml", network),
        "system": write_json(folder / "system.json", case["system"]),
        "profile": "astra-sim-2",
        "network": "congested" if aware else "congestion-free",
        **options(case["cli"]),
    }
    for key in ("comm_groups", "remote_memory"):
        if case.get(key):
            found[key] = write_json(folder / f"{key}.json", case[key])
    return found


def _traces(workload: Mapping[str, Any], npus: int, folder: Path) -> str:
    prefix = folder / "workload"
    if workload["kind"] == "text":
        header = f"{workload['parallelism']} {workload.get('header_args', '')}".strip()
        text = write_text(folder / "workload.txt", header, workload["layers"])
        made = conversion.Options(npus=npus, iterations=workload["passes"])
        files = conversion.convert(text, str(folder / "converted"), made)
        writer.write_files(files)
        return str(folder / "converted")
    nodes = workload.get("all") or [workload | {"id": 0, "type": "COMM_COLL", "is_cpu_op": False}]
    per_npu = workload.get("per_npu") or [nodes] * npus
    for rank, mine in enumerate(per_npu):
        prefix.with_suffix(f".{rank}.et").write_bytes(writer.encode(writer.metadata(), map(_node, mine)))
    return str(prefix)


def _node(entry: Mapping[str, Any]) -> Any:
    attributes = {name: entry[key] for key, name in ATTRIBUTES.items() if key in entry}
    if "collective" in entry:
        attributes["comm_type"] = COLLECTIVES[entry["collective"]]
    if "pg_name" in entry:
        attributes["pg_name"] = str(entry["pg_name"])
    return writer.node(
        entry["id"],
        entry.get("name", f"node_{entry['id']}"),
        TYPES[entry["type"]],
        data_deps=entry.get("data_deps", ()),
        ctrl_deps=entry.get("ctrl_deps", ()),
        duration_micros=entry.get("duration_micros", 0),
        attributes=attributes,
    )
