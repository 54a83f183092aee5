"""The smallest case of every rule of ASTRA-sim 1.0; figures in ns that the program printed, but for those said else."""

from tests.laws.cases_astra_sim_1 import answer, case, layer, machine, system

SWITCHES = machine(["Switch", "Switch"], [2, 4], link_bandwidth=[200, 50])


def micro(kind, size_bytes):
    return [layer(wg=(0, kind, size_bytes))]


def time_ns(*given, **options):
    return answer(case(*given, **options))["time_ns"]


def test_memory_of_a_dimension_bounds_that_dimension_alone():
    """Of the first one all messages would take 500 ns."""
    network = machine(["Switch"] * 2, [2, 2], link_latency=[500, 100], hbm_scale=[1, 0])
    assert time_ns("DATA", micro("REDUCESCATTER", 64), network, system("ring_ring")) == 1242


def test_a_fraction_of_a_nanosecond_is_carried_from_chunk_to_chunk():
    """Two chunks of 521.52 ns and one byte's 520; dropped at each phase: 1564."""
    network = machine(["Switch"], [64], link_latency=100, hbm_scale=1)
    chosen = system("direct", preferred_dataset_splits=2)
    assert time_ns("DATA", micro("REDUCESCATTER", 72093), network, chosen) == 1565


def test_a_fraction_of_a_nanosecond_lengthens_a_window_of_messages():
    """A closed form, not run there: two rounds of 2 + 19 / 13 ns, three endpoint delays, the update."""
    network = machine(["Switch"], [5], link_latency=0, hbm_latency=2, hbm_bandwidth=13, hbm_scale=1)
    chosen = system("direct2", endpoint_delay=1)
    assert time_ns("MICRO", micro("ALLGATHER", 19), network, chosen) == int(2 * (2 + 19 / 13) + 3) + 1


def test_row_0_of_a_customized_file_follows_its_column():
    """A DLRM row has no forward collective; in a DLRM file row 0 has."""
    row = [layer(fwd=(0, "ALLGATHER", 64), policy="HYBRID_DLRM")]
    assert time_ns("HYBRID_CUSTOMIZED", row, machine(["Switch"], [2]), system()) == 3


def test_round_robin_turns_upwards():
    network = machine(["Switch"] * 3, [2, 4, 8], link_bandwidth=[200, 50, 12.5])
    chosen = system("ring_ring_ring", preferred_dataset_splits=2, inter_dimension_scheduling="roundRobin")
    assert time_ns("MICRO", micro("ALLREDUCE", 1 << 20), network, chosen) == 74_657


def test_a_collective_that_nobody_takes_part_in_takes_its_turn():
    """The second all-gather starts in the other dimension than it does without the first row's, which is masked."""
    chosen = system("ring_ring", inter_dimension_scheduling="roundRobin")
    real = layer(policy="MODEL", fwd=(0, "ALLGATHER", 1 << 20))
    masked, idle = layer(policy="DATA", fwd=(0, "ALLGATHER", 64)), layer(policy="DATA")
    times = [time_ns("HYBRID_CUSTOMIZED", [first, real], SWITCHES, chosen) for first in (masked, idle)]
    assert times[0] != times[1]


def test_themis_keeps_all_reduce_phases_under_baseline():
    chosen = system("ring_ring", collective_optimization="baseline", inter_dimension_scheduling="themis")
    assert time_ns("MICRO", micro("ALLREDUCE", 1 << 20), SWITCHES, chosen) == 42_278


def test_themis_flex_divides_the_slack_of_an_all_gather_by_all_dimensions_but_the_last():
    chosen = system("ring_ring", preferred_dataset_splits=16, inter_dimension_scheduling="themisFlex")
    assert time_ns("MICRO", micro("ALLGATHER", 1 << 20), SWITCHES, chosen) == 167_134


def test_themis_sees_the_loads_of_the_collective_before_when_another_npu_issues_first():
    """After 1 step of the rings of 2 and 2 of those of 3, NPU 5 is first; with cleared loads it would be 6113."""
    network = machine(["Switch"] * 2, [2, 3], link_bandwidth=[50, 200])
    rows = [layer(fwd=(0, "REDUCESCATTER", size)) for size in (64, 1024)]
    chosen = system("ring_ring", inter_dimension_scheduling="themis")
    assert time_ns("DISTRIBUTED_INFERENCE", rows, network, chosen) == 6109
