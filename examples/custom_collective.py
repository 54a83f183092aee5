"""A collective of one's own: Bruck's all-to-all with digits of base 4, against bits and against one after the other.

Fewer rounds than pairwise exchange (`direct1`), fewer bytes than with bits (`bruck`). Where are the crossings?
"""

import tempfile
from pathlib import Path

import simcore
from simcore.errors import InputError
from simcore.system.collectives import PlanOptions, algorithms
from simcore.system.plans.plan import Plan, Round
from simcore.workload.model import CollectiveKind


@algorithms.register("bruck4")
def bruck4(kind: CollectiveKind, size: int, data_bytes: int, options: PlanOptions) -> Plan:
    """A round for each digit of the way that is not 0, written to base 4 (Bruck et al., IEEE TPDS 8 (1997) 1143)."""
    if kind != CollectiveKind.ALL_TO_ALL:
        raise InputError.at("bruck4", f"bruck4 does no {kind}", expected="an all-to-all")
    block_bytes = data_bytes // size
    moves = [(place, digit) for place in (1, 4, 16, 64, 256, 1024) for digit in (1, 2, 3) if place * digit < size]
    blocks = [sum(1 for way in range(size) if way // place % 4 == digit) for place, digit in moves]
    rounds = (Round(place * digit, count * block_bytes) for (place, digit), count in zip(moves, blocks, strict=True))
    return Plan(size, tuple((entry, 1) for entry in rounds))


ALGORITHMS = ("direct1", "bruck", "bruck4")
NETWORK = "topology: [Switch]\nnpus_count: [64]\nbandwidth: [50.0]\nlatency: [500.0]\n"
SYSTEM = "endpoint-delay: 1000\npreferred-dataset-splits: 1\nall-to-all-implementation: [{}]\n"
WORKLOAD = "MICRO\n1\nexchange -1 0 NONE 0 0 NONE 0 0 ALLTOALL {} 1\n"


def main() -> None:
    """Print the times against the size of the buffer."""
    print(f"{'bytes':>9}", *(f"{name:>12}" for name in ALGORITHMS))
    with tempfile.TemporaryDirectory() as name:
        for size_bytes in (1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24):
            times = [_time_ns(Path(name), algorithm, size_bytes) / 1e3 for algorithm in ALGORITHMS]
            print(f"{size_bytes:>9}", *(f"{time:>9.1f} us" for time in times))


def _time_ns(folder: Path, algorithm: str, size_bytes: int) -> int:
    files = {"net.yaml": NETWORK, "system.yaml": SYSTEM.format(algorithm), "w.txt": WORKLOAD.format(size_bytes)}
    for name, content in files.items():
        (folder / name).write_text(content)
    report = simcore.run(str(folder / "w.txt"), str(folder / "net.yaml"), str(folder / "system.yaml"))
    return report.to_dict()["time_ns"]


if __name__ == "__main__":
    main()
