from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.runs import Cost, simcore, topology

MILLION = (("Switch", 8), ("Switch", 128), ("Switch", 1024))


@pytest.fixture
def million(tmp_path: Path) -> str:
    """A topology of 1,048,576 NPUs."""
    return topology(tmp_path / "million.yaml", *MILLION)


@pytest.fixture
def measure(benchmark: BenchmarkFixture) -> Callable[..., Cost]:
    """Runs the command three times under pytest-benchmark; the least cost is noted beside the times and returned."""

    def run(*arguments: str, rounds: int = 3) -> Cost:
        costs: list[Cost] = []
        benchmark.pedantic(lambda: costs.append(simcore(*arguments)), rounds=rounds)
        best = min(costs, key=lambda cost: cost.cpu_s)
        benchmark.extra_info.update(cpu_s=round(best.cpu_s, 3), peak_mb=round(best.peak_mb))
        return best

    return run
