"""The systems behind the published measurements: accelerator, interconnect and software, one constant set each.

Every figure is either stated by the source or in `FITTED`, which `python -m simcore.cost.published.calibrate` fits;
docs/validation.md says how well the constants carry over to rows they were not fitted on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib import resources
from typing import Any

from simcore.compute.accelerators import accelerator, variant
from simcore.compute.efficiency import A100, Efficiency, efficiency
from simcore.cost.cluster import Cluster, Software
from simcore.errors import InputError
from simcore.system.collectives.nccl import FABRICS, Fabric

__all__ = ["CLUSTERS", "FITTED", "SOFTWARE", "Cluster", "clusters", "fabric_of", "placed"]

# The constants of the software on each system. Kernel constants of the A100 are in `simcore.compute.efficiency`.
FITTED: dict[str, float] = {
    "megascale.step_s": 0.730,
    "megascale.slowdown": 0.129,
    "vtrain.launch_us": 57.2,
    "vtrain.step_ms": 3.74,
    "bridge.expert_us": 131.0,
    "foundry.launch_us": 20.7,
    "foundry.attention_a100": 0.290,
    "foundry.attention_h100": 0.183,
    "foundry.step_ms": 34.0,
}


# What of the other accelerators' kernel constants is fitted, in `simcore.compute.efficiency`.
_PER_DEVICE = {
    "H100-SXM-80GB": ("gemm", "gemm_8bit", "attention"),
    "B200-SXM": ("gemm", "attention"),
    "GB200": ("gemm_8bit", "gemm_4bit"),
    "GB300": ("gemm_8bit", "gemm_4bit"),
}


def kernel_constants() -> dict[str, float]:
    """The accelerators' constants under the names calibration uses; plain names are the A100's."""
    own = {"gemm": A100.gemm, "depth": A100.depth, "memory": A100.memory, "kernel_us": A100.kernel_s * 1e6}
    rest = {
        f"{device}.{name}": getattr(efficiency(device), name) for device in _PER_DEVICE for name in _PER_DEVICE[device]
    }
    return own | rest


def _device_constants(device: str, values: Mapping[str, float]) -> Efficiency:
    return replace(efficiency(device), **{name: values[f"{device}.{name}"] for name in _PER_DEVICE.get(device, ())})


_MODERN = Software(launch_s=3e-6, step_s=0.05, tiles=True, sends_once=True)


_MODERN_SYSTEMS = {
    "h100": ("H100-SXM-80GB", "hgx-h100"),
    "dgx-b200": ("B200-SXM", "efa-b200"),
    "dgx-b300": ("B300-SXM", "efa-b200"),
    "gb200": ("GB200", "nvl72"),
    "gb300": ("GB300", "nvl72"),
}


def _modern(device: str, name: str, values: Mapping[str, float]) -> Cluster:
    return Cluster(device, FABRICS[name], _MODERN, _device_constants(device, values))


def _one_by_one(cluster: Cluster, values: Mapping[str, float]) -> Cluster:
    """Megatron-Bridge before release 26.06, where time follows a rank's experts; that the host is why is our guess."""
    return replace(cluster, software=replace(cluster.software, expert_launch_s=values["bridge.expert_us"] * 1e-6))


def clusters(values: Mapping[str, float]) -> dict[str, Cluster]:
    """All systems with the constants in `values`: those of `FITTED` and of `kernel_constants`."""
    kernels = Efficiency(values["gemm"], values["depth"], A100.attention, values["memory"], values["kernel_us"] * 1e-6)
    fabric = FABRICS["azure-a100"]
    plain = Software(launch_s=15e-6, step_s=0.05)
    baseline = replace(plain, hides_input_gradient=True, step_s=values["megascale.step_s"])
    # Its 16-bit gradients are summed by the framework: two read, one written.
    deepspeed = Software(values["vtrain.launch_us"] * 1e-6, values["vtrain.step_ms"] * 1e-3, accumulation_bytes=6.0)
    waiting = replace(deepspeed, synchronous=True)
    fsdp = Software(values["foundry.launch_us"] * 1e-6, values["foundry.step_ms"] * 1e-3)
    triton = replace(kernels, attention=values["foundry.attention_a100"])
    hopper = replace(_device_constants("H100-SXM-80GB", values), attention=values["foundry.attention_h100"])
    device = "A100-SXM-80GB"  # the sources that do not say 40 or 80 GB are taken for the latter
    modern = {
        name: _modern(device_name, fabric_name, values) for name, (device_name, fabric_name) in _MODERN_SYSTEMS.items()
    }
    return {
        # Selene: DGX A100 80 GB, 8x HDR per node; Megatron-LM of 2021 and of 2022 (fp16, unfused attention, apex
        # kernels).
        "selene-2021": Cluster(device, fabric, plain, kernels),
        "selene": Cluster(device, fabric, replace(plain, hides_input_gradient=True), kernels),
        # The MegaScale paper's cluster with its Megatron-LM baseline, and with the paper's own optimisations.
        "megascale-megatron": Cluster(device, fabric, baseline, kernels),
        "megascale": Cluster(
            device, fabric, replace(baseline, tiles=True, slowdown=values["megascale.slowdown"]), kernels
        ),
        # Today's Megatron-Core and its like on Hopper and Blackwell: graphs launch the kernels.
        **modern,
        **{f"{name}-26.04": _one_by_one(cluster, values) for name, cluster in modern.items()},
        # SimuMax: one node of B200, Megatron-Core with nothing overlapped.
        "b200": Cluster(
            "B200-SXM", FABRICS["efa-b200"], Software(launch_s=6e-6, step_s=0.0), _device_constants("B200-SXM", values)
        ),
        # llm-foundry: PyTorch FSDP, attention in Triton.
        "foundry-a100": Cluster(device, fabric, fsdp, triton),
        "foundry-a100-40gb": Cluster("A100-SXM-40GB", fabric, fsdp, triton),
        "foundry-h100": Cluster("H100-SXM-80GB", FABRICS["hgx-h100"], fsdp, hopper),
        # BigScience: Jean Zay, 8x A100 80 GB with four 100 Gb/s cards per node, Megatron-DeepSpeed with every launch
        # waiting (its tr11-176B-ml.slurm); at the end with gradients summed in 32 bits (chronicles-prequel.md).
        "jean-zay": Cluster(device, FABRICS["jean-zay"], waiting, kernels),
        "jean-zay-bf16": Cluster(device, FABRICS["jean-zay"], replace(waiting, accumulation_bytes=20.0), kernels),
        # vTrain: Megatron-DeepSpeed on one node, and on a cluster with 800 Gb/s per node.
        "vtrain-node": Cluster(device, fabric, deepspeed, kernels),
        "vtrain-cluster": Cluster(device, FABRICS["a100-800g"], deepspeed, kernels),
    }


CLUSTERS = clusters({**FITTED, **kernel_constants()})

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


def _software(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Software]:
    known = {field.name for field in fields(Software)}
    profiles = {name: entry for name, entry in table.items() if not isinstance(entry, str)}
    return {
        name: Software(**{key: value for key, value in entry.items() if key in known})
        for name, entry in profiles.items()
    }


SOFTWARE = _software(json.loads(resources.files(__package__).joinpath("software.json").read_text()))

# The beginning of an accelerator's name -> its usual interconnect and the Gb/s of a node's network cards together.
_USUAL = {
    "A100": ("azure-a100", 1600),
    "H100": ("hgx-h100", 3200),
    "H800": ("hgx-h100", 3200),
    "H200-NVL": ("nvl-bridge", 1600),
    "H200": ("hgx-h200", 3200),
    "B200": ("efa-b200", 3200),
    "B300": ("efa-b200", 6400),
    "GB": ("nvl72", 1600),
    "MI": ("mi300x", 3200),
    "L40S": ("l40s", 800),
    "V100": ("hgx-v100", 400),
    "Gaudi": ("gaudi2", 2400),
    "TPUv4": ("tpu-v4", 100),
    "TPUv5e": ("tpu-v5e", 100),
    "TPUv5p": ("tpu-v5p", 200),
    "TPUv6e": ("tpu-v6e", 200),
}
_CARDS = re.compile(r"(?:(\d+) x )?(\d+) Gb(?:/s)?(?: \w+)? per node")
_RATE = re.compile(r"([\d.]+) TB/s")


def placed(
    device: str, software: str, *, count: int, per_node: int = 0, scale_out: str = "", remarks: str = ""
) -> Cluster:
    """Accelerators with the interconnect usual for them and some software.

    `scale_out` may state the network cards ("4 x 100 Gb RoCE per node"), `remarks` a memory rate ("2.4 TB/s") by which
    a kind of the device is told. NVL72 is cut into domains of 72 where these divide the accelerators, else of 64.
    """
    known = accelerator(device)
    rate = _RATE.search(remarks)
    if rate:
        known = variant(known, float(rate[1]) * 1e12)
    usual = next((entry for start, entry in _USUAL.items() if known.name.startswith(start)), None)
    if usual is None:
        raise InputError.at(device, "no interconnect is known", expected=", ".join(_USUAL), found=known.name)
    fabric = FABRICS[usual[0]]
    if usual[0] == "nvl72":
        ranks = 72 if count % 72 == 0 or count < fabric.node_ranks else 64
        fabric = replace(fabric, node_ranks=ranks)
    elif per_node and not usual[0].startswith("tpu"):
        fabric = replace(fabric, node_ranks=per_node)
    cards = _CARDS.search(scale_out)
    if cards:
        fabric = fabric.with_cards(int(cards[1] or 1) * int(cards[2]) / usual[1])
    return Cluster(known.name, fabric, SOFTWARE[software])
