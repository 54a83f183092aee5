"""The systems behind the published measurements: accelerator, interconnect and software, one constant set each.

Every figure is either stated by the source or fitted by `simcore.cost.calibrate`; docs/validation.md lists which.
"""

from __future__ import annotations

from simcore.cost.predict import Cluster, Software
from simcore.errors import InputError
from simcore.system.collectives.nccl import FABRICS, Fabric

__all__ = ["CLUSTERS", "Cluster", "fabric_of"]

_A100_80, _A100_40 = "A100-SXM-80GB", "A100-SXM-40GB"
CLUSTERS: dict[str, Cluster] = {
    # Selene: DGX A100 80 GB, 8x HDR per node; Megatron-LM of 2021-22 (fp16, unfused attention, apex kernels).
    "selene": Cluster(_A100_80, FABRICS["azure-a100"], Software(launch_s=15e-6, step_s=0.05)),
    # The MegaScale paper's A100 cluster with its Megatron-LM baseline, and with the paper's own optimisations.
    "megascale-megatron": Cluster(_A100_80, FABRICS["azure-a100"], Software(launch_s=15e-6, step_s=0.3)),
    "megascale": Cluster(_A100_80, FABRICS["azure-a100"], Software(launch_s=15e-6, step_s=0.3, tp_hidden=0.6)),
    # vTrain: Megatron-DeepSpeed, one node, and a cluster with 800 Gb/s per node.
    "vtrain-node": Cluster(_A100_40, FABRICS["azure-a100"], Software(launch_s=70e-6, step_s=0.005)),
    "vtrain-cluster": Cluster(_A100_80, FABRICS["azure-a100"], Software(launch_s=70e-6, step_s=0.05)),
}

# What a hardware description must contain -> the fabric its collectives are timed with; the first match counts.
_DESCRIPTIONS: tuple[tuple[str, str], ...] = (
    ("Azure", "azure-a100"),
    ("A100", "dgx-a100"),
    ("H100", "hgx-h100"),
    ("H200", "hgx-h200"),
    ("B200", "efa-b200"),
)


def fabric_of(hardware: str, table: str) -> Fabric:
    """The fabric a collective table's hardware text means; rings only where it says so."""
    for word, name in _DESCRIPTIONS:
        if word in hardware:
            return FABRICS[name]
    known = ", ".join(word for word, _ in _DESCRIPTIONS)
    raise InputError.at(table, "no fabric is known for this hardware", expected=f"one of {known}", found=repr(hardware))
