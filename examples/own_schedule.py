"""A schedule of one's own: an all-gather both ways round a ring, against the ring and what is synthesised for it."""

import json
import tempfile
from pathlib import Path

import simcore

NPUS = 8
NETWORK = f"topology: [Ring]\nnpus_count: [{NPUS}]\nbandwidth: [50.0]\nlatency: [500.0]\n"
WORKLOAD = "MICRO\n1\ngather -1 0 NONE 0 0 NONE 0 0 ALLGATHER {} 1\n"
CHOICES = {"ring": "ring", "both ways": "{schedule: both_ways.json}", "synthesised": "synthesised"}


def both_ways(npus: int) -> dict[str, object]:
    """In step s, what came from s ranks behind goes on, and what came from s ranks ahead goes back."""
    steps = []
    for step in range(npus // 2):
        on = [{"src": r, "dst": (r + 1) % npus, "chunk": (r - step) % npus} for r in range(npus)]
        back = [{"src": r, "dst": (r - 1) % npus, "chunk": (r + step) % npus} for r in range(npus)]
        steps.append(on + (back if 2 * step + 2 < npus else []))  # the farthest rank is reached one way only
    return {"collective": "all_gather", "ranks": npus, "chunks": npus, "steps": steps}


def main() -> None:
    """Print the times against the size of a share."""
    print(f"{'bytes':>9}", *(f"{name:>12}" for name in CHOICES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "both_ways.json").write_text(json.dumps(both_ways(NPUS)))
        for size_bytes in (1 << 10, 1 << 16, 1 << 22):
            times = [_time_ns(folder, choice, size_bytes) / 1e3 for choice in CHOICES.values()]
            print(f"{size_bytes:>9}", *(f"{time:>9.1f} us" for time in times))


def _time_ns(folder: Path, choice: str, size_bytes: int) -> int:
    system = f"preferred-dataset-splits: 1\nall-gather-implementation: [{choice}]\n"
    files = {"net.yaml": NETWORK, "system.yaml": system, "w.txt": WORKLOAD.format(size_bytes)}
    for name, content in files.items():
        (folder / name).write_text(content)
    report = simcore.run(str(folder / "w.txt"), str(folder / "net.yaml"), str(folder / "system.yaml"))
    return report.to_dict()["time_ns"]


if __name__ == "__main__":
    main()
