"""Profiles of a million events: reading them, and whole replays."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simcore.workload.kineto_reader import read_kineto

EVENTS, STEPS, LAUNCHES = 1_000_000, 20, 12_500
WORK = (
    '{{"ph":"X","cat":"cpu_op","name":"aten::{name}","pid":1,"tid":1,"ts":{at},"dur":9,"args":{{"External id":{n}}}}}'
)
CALL = (
    '{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{at}.5,"dur":5,'
    '"args":{{"External id":{n},"cbid":211,"correlation":{n}}}}}'
)
KERNEL = (
    '{{"ph":"X","cat":"kernel","name":"void at::native::{name}_kernel<4, float, at::detail::Array<char*, 3> >(int)",'
    '"pid":0,"tid":7,"ts":{start},"dur":8,"args":{{"External id":{n},"queued":0,"device":0,"context":1,"stream":7,'
    '"correlation":{n},"registers per thread":32,"grid":[1,1,1],"block":[128,1,1],"est. achieved occupancy %":31}}}}'
)
FLOW = '{{"ph":"s","id":{n},"pid":1,"tid":1,"ts":{at},"cat":"ac2g","name":"ac2g"}}'
MARK = '{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{step}","pid":1,"tid":1,"ts":{at},"dur":{length}}}'


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps of 12,500 launches, as PyTorch writes them: 250,000 operators, calls, kernels and flows."""
    path = tmp_path_factory.mktemp("profile") / "trace.json"
    path.write_text('{"schemaVersion":1,"distributedInfo":{"rank":0},"traceEvents":[' + ",\n".join(_events()) + "]}")
    return path


def _events() -> Iterator[str]:
    for step in range(STEPS):
        yield MARK.format(step=step, at=step * LAUNCHES * 10, length=LAUNCHES * 10)
        for at in range(LAUNCHES):
            number = step * LAUNCHES + at
            filled = {"n": number + 1, "at": 10 * number, "start": 10 * number + 8, "name": f"op{at % 40}"}
            yield from (form.format(**filled) for form in (WORK, CALL, KERNEL, FLOW))


def bench_reading_costs_less_than_pythons_json(benchmark, profile: Path) -> None:
    """100 MB in less than 3 s, and in half the time that `json.loads` takes to make objects of them."""
    content = profile.read_bytes()
    start_s = time.process_time()
    json.loads(content)
    plain_s = time.process_time() - start_s
    start_s = time.process_time()
    trace = benchmark.pedantic(read_kineto, (content, "trace.json"), rounds=1)
    own_s = time.process_time() - start_s
    assert len(trace.operators) + len(trace.calls) + len(trace.tasks) == EVENTS * 3 // 4
    assert own_s < 0.6 * plain_s
    assert own_s < 3 * len(content) / 1e8


def bench_a_replay_of_a_million_events(measure, profile: Path) -> None:
    cost = measure("replay", str(profile), rounds=1)
    assert cost.said.startswith("Rank 0: its dependencies predict 125 ms a step where 125 ms was measured")
    assert cost.peak_mb < 1000
    assert cost.cpu_s < 20
