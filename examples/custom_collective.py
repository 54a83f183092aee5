"""A collective of one's own: Bruck's all-to-all against sending to one NPU after the other.

Bruck sends log2 n messages where pairwise exchange (`direct1`) sends n - 1, but most bytes several times: good for
small messages, bad for large ones. Where is the crossing?
"""

import tempfile
from pathlib import Path

import simcore
from simcore.errors import InputError
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("logarithmic")
def logarithmic(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """Round k carries every block whose distance has bit k (Bruck et al., IEEE TPDS 8 (1997) 1143)."""
    if kind != CollectiveKind.ALL_TO_ALL:
        message = f"logarithmic does no {kind}"
        raise InputError.at("logarithmic", message, expected="all-to-all-implementation: [logarithmic]")
    block_bytes = data_bytes // size
    hops = [1 << bit for bit in range((size - 1).bit_length())]
    blocks = [sum(1 for distance in range(size) if distance & hop) for hop in hops]
    rounds = (Round(hop, count * block_bytes) for hop, count in zip(hops, blocks, strict=True))
    return Plan(size, tuple((entry, 1) for entry in rounds))


NETWORK = "topology: [Switch]\nnpus_count: [64]\nbandwidth: [50.0]\nlatency: [500.0]\n"
SYSTEM = "endpoint-delay: 1000\npreferred-dataset-splits: 1\nall-to-all-implementation: [{}]\n"
WORKLOAD = "MICRO\n1\nexchange -1 0 NONE 0 0 NONE 0 0 ALLTOALL {} 1\n"


def main() -> None:
    """Print both times against the size of the buffer."""
    print(f"{'bytes':>9} {'direct1':>12} {'logarithmic':>12}")
    with tempfile.TemporaryDirectory() as name:
        for size_bytes in (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24):
            times = [_time_ns(Path(name), algorithm, size_bytes) / 1e3 for algorithm in ("direct1", "logarithmic")]
            print(f"{size_bytes:>9} {times[0]:>9.1f} us {times[1]:>9.1f} us")


def _time_ns(folder: Path, algorithm: str, size_bytes: int) -> int:
    files = {"net.yaml": NETWORK, "system.yaml": SYSTEM.format(algorithm), "w.txt": WORKLOAD.format(size_bytes)}
    for name, content in files.items():
        (folder / name).write_text(content)
    report = simcore.run(str(folder / "w.txt"), str(folder / "net.yaml"), str(folder / "system.yaml"))
    return report.to_dict()["time_ns"]


if __name__ == "__main__":
    main()
