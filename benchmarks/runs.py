"""Whole runs of the command, measured: seconds of CPU (start-up included) and megabytes at the peak."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cost", "simcore", "topology"]

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took. CPU time is what the program asks for; wall time is that and the machine's other guests."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    said: str = ""


# A child's peak counts what its parent held when it was started: a small process stands between.
MEASURE = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, end="")
sys.exit(status)
"""


def simcore(*arguments: str) -> Cost:
    """Run `simcore` with these arguments in a process of its own; `said` is what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-S", "-c", MEASURE, sys.executable, "-m", "simcore", *arguments]
    start_s = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT, check=True, text=True)
    wall_s = time.perf_counter() - start_s
    said, _, figures = done.stdout.rpartition("\n")
    cpu_s, peak_mb = map(float, figures.split())
    return Cost(cpu_s, wall_s, peak_mb, said)


def topology(path: Path, *dims: tuple[str, int]) -> str:
    """Write a topology of (kind, NPUs) per dimension, every link 100 GB/s and 100 ns; its path as text."""
    rows = {
        "topology": [kind for kind, _ in dims],
        "npus_count": [npus for _, npus in dims],
        "bandwidth": [100] * len(dims),
        "latency": [100] * len(dims),
    }
    path.write_text("".join(f"{key}: [{', '.join(map(str, values))}]\n" for key, values in rows.items()))
    return str(path)
