"""Fewer launches: what CUDA graphs and fusion leave of a step, on a slower host than its device and on a faster one."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.replay.run import UNAIDED
from simcore.replay.session import replay_traces
from simcore.replay.whatif.changes import cuda_graphs, fused
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import LAUNCH_US, recorded


def step_ns(program, *whats):
    (steps,) = replay_traces([read_kineto(recorded(program).content(), "made.json")], UNAIDED, whats).steps
    return steps[1].period.device_ns


def program(lengths_us, host_us):
    """One kernel after the other, each behind some host time; the host waits for the last."""
    launches = [
        line for at, length in enumerate(lengths_us) for line in (("work", host_us), ("launch", f"point_{at}", length))
    ]
    return [*launches, ("synchronise",)]


@given(st.lists(st.integers(5, 60), min_size=3, max_size=8), st.integers(80, 200))
def test_graphs_leave_one_launch_of_a_slow_host_and_its_time_before_it(lengths_us, host_us):
    """Behind the wait comes the first launch; all others, and the host time before them, go."""
    lines = program(lengths_us, host_us)
    gone_us = (len(lengths_us) - 1) * (host_us + LAUNCH_US)
    left_ns = step_ns(lines, cuda_graphs())
    assert step_ns(lines) - left_ns >= 1000 * (gone_us - sum(lengths_us) - len(lengths_us) * 2)
    assert left_ns >= 1000 * (host_us + LAUNCH_US + sum(lengths_us))


@given(st.lists(st.integers(300, 600), min_size=3, max_size=6))
def test_graphs_leave_a_busy_device_what_it_computes(lengths_us):
    lines = program(lengths_us, 1)
    assert 1000 * sum(lengths_us) <= step_ns(lines, cuda_graphs()) <= step_ns(lines)


@given(st.lists(st.integers(200, 600), min_size=2, max_size=6), st.integers(100, 300))
def test_fused_neighbours_last_as_the_longest_of_them(lengths_us, other_us):
    """What runs before and behind them stays; a gap of a microsecond goes with each kernel."""
    lines = [("launch", "gemm", other_us), *program(lengths_us, 1)[:-1], ("launch", "norm", other_us), ("synchronise",)]
    saved_ns = step_ns(lines) - step_ns(lines, fused(re.compile("point")))
    assert saved_ns == pytest.approx(1000 * (sum(lengths_us) - max(lengths_us)), abs=1000 * 2 * len(lengths_us))


def test_launches_of_fused_kernels_go_from_a_slow_host():
    lines = program([10, 10, 10, 10], 100)
    assert step_ns(lines) - step_ns(lines, fused(re.compile("point"))) >= 3000 * LAUNCH_US
