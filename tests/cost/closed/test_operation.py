"""Failures, energy, money and links of a run: laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.cost.closed.operation import HOUR_S, Operation, OperationCost, daly_interval_s, wall_clock_s
from simcore.errors import InputError

checkpoints = st.floats(1, 600)
machines = st.floats(3600, 1e6)


@given(checkpoints, machines, st.floats(0.3, 3).filter(lambda factor: abs(factor - 1) > 0.05))
def test_no_other_interval_between_checkpoints_is_better(checkpoint_s, mtbf_s, factor):
    best = daly_interval_s(checkpoint_s, mtbf_s)
    at_best, elsewhere = (wall_clock_s(1e6, best * f, checkpoint_s, 0, mtbf_s) for f in (1, factor))
    assert at_best <= elsewhere * (1 + 1e-4)


@given(checkpoints, machines, st.floats(0, 3600))
def test_failures_only_lengthen_a_run_and_vanish_with_a_perfect_machine(checkpoint_s, mtbf_s, restart_s):
    interval = daly_interval_s(checkpoint_s, mtbf_s)
    assert wall_clock_s(1e6, interval, checkpoint_s, restart_s, mtbf_s) > 1e6
    perfect = 1e15
    rare = wall_clock_s(1e6, daly_interval_s(checkpoint_s, perfect), checkpoint_s, restart_s, perfect)
    assert rare == pytest.approx(1e6, rel=1e-4)


@given(st.floats(1, 1e7), st.floats(1, 1e18))
def test_at_the_break_even_bandwidth_links_and_arithmetic_take_the_same_time(ideal_s, size_bytes):
    alone = OperationCost(Operation(chips=8), ideal_s, size_bytes)
    cost = OperationCost(Operation(chips=8, wide_area_bytes_per_s=alone.break_even_bytes_per_s), ideal_s, size_bytes)
    assert cost.communication_s == pytest.approx(ideal_s)
    slower = Operation(chips=8, wide_area_bytes_per_s=alone.break_even_bytes_per_s / 2)
    assert OperationCost(slower, ideal_s, size_bytes).wall_clock_s == pytest.approx(2 * ideal_s)


def test_energy_and_money_count_every_chip_for_the_whole_wall_clock():
    cost = OperationCost(
        Operation(10, chip_watts=700, power_usage_effectiveness=1.5, price_per_chip_hour=2), 2 * HOUR_S
    )
    assert cost.energy_joules == 10 * 700 * 1.5 * 2 * HOUR_S
    assert cost.money == 10 * 2 * 2


def test_a_machine_of_more_chips_fails_more_often():
    # 16,384 chips of 50,700 hours: a failure every 3.1 hours, as Llama 3 405B saw
    operation = Operation(16384, mean_time_between_failures_s=50700 * HOUR_S, checkpoint_s=60, restart_s=600)
    cost = OperationCost(operation, 54 * 24 * HOUR_S)
    assert cost.expected_failures == pytest.approx(419 * cost.wall_clock_s / (54 * 24 * HOUR_S), rel=0.01)
    assert 1.1 < cost.wall_clock_s / cost.ideal_s < 1.2


def test_what_cannot_be_answered_is_refused():
    with pytest.raises(InputError, match="--wan_bandwidth"):
        OperationCost(Operation(8, wide_area_bytes_per_s=1e9), 1.0)
    with pytest.raises(InputError, match="--mtbf_hours"):
        OperationCost(Operation(10**9, mean_time_between_failures_s=1.0, checkpoint_s=60), 1.0)
    with pytest.raises(InputError, match="--checkpoint_seconds"):
        OperationCost(Operation(8, mean_time_between_failures_s=1e6), 1.0)


@pytest.mark.parametrize(("hours", "minutes"), [(24.0, 117), (6.0, 57), (0.25, 9.1)])
def test_the_best_interval_is_that_of_the_source(hours, minutes):
    """Daly 2006, figures 3 to 5: checkpoints of 5 minutes."""
    assert daly_interval_s(300.0, hours * 3600.0) / 60 == pytest.approx(minutes, rel=0.01)


@pytest.mark.parametrize("mean_h,minutes", [(24, 117), (6, 57), (0.25, 9.1)])
def test_the_best_interval_is_that_of_the_papers_figures(mean_h, minutes):
    """Daly's figures 3 to 5: a dump of five minutes, and the mean time between failures of the machine."""
    assert daly_interval_s(300, mean_h * 3600) / 60 == pytest.approx(minutes, rel=0.006)
