"""Rules of ASTRA-sim 2.x in their smallest cases; the figures are its own (reference, section 15)."""

from math import prod

import pytest

from simcore.api import run
from simcore.errors import DeadlockError
from tests.oracles.astra2 import Simulation
from tests.published.peers import second_generation
from tests.published.test_astra_sim import ranks_of


def case_of(dims, nodes, *, shared=False, queues=1, rendezvous=False, algorithm="ring", splits=1):
    """A case as the oracle writes it. `dims` are (kind, NPUs), `nodes(npu)` are an NPU's."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    system = {"endpoint-delay": 10, "active-chunks-per-dimension": 1, "local-mem-bw": 1600, "scheduling-policy": "LIFO"}
    system |= {f"{kind}-implementation": [algorithm] * len(dims) for kind in kinds}
    system |= {"preferred-dataset-splits": splits, "collective-optimization": "localBWAware"}
    sizes = [{"type": name, "npus": size, "bandwidth_GBps": 50, "latency_ns": 500} for name, size in dims]
    return {
        "backend": "congestion_aware" if shared else "congestion_unaware",
        "topology": {"dims": sizes},
        "system": system,
        "workload": {"kind": "nodes", "per_npu": [nodes(npu) for npu in range(prod(size for _, size in dims))]},
        "cli": {"num-queues-per-dim": queues, "rendezvous-protocol": rendezvous},
    }


def node(kind, number=0, after=(), **attributes):
    """A node of a trace."""
    return {"id": number, "type": kind, "is_cpu_op": False, "data_deps": list(after)} | attributes


def collective(kind, size_bytes, number=0, after=()):
    """A node that all NPUs take part in."""
    return node("COMM_COLL", number, after, collective=kind, bytes=size_bytes)


def finishes(case, folder):
    """When every NPU is done."""
    report = run(**second_generation(case, folder)).to_dict()
    rows = {rank: row["finish_ns"] for row in report["ranks"] for rank in ranks_of(row["ranks"])}
    return [rows[rank] for rank in range(len(rows))]


def late(npu, kind, size_bytes):
    """A collective, on one NPU behind a computation of 50 us."""
    behind = [node("COMP", duration_micros=50), collective(kind, size_bytes, 1, [0])]
    return lambda at: behind if at == npu else [collective(kind, size_bytes)]


def test_the_second_half_of_the_queues_goes_anticlockwise(tmp_path):
    nodes = [collective("ALL_GATHER", 1 << 20)]
    case = case_of([("Ring", 4)], lambda _: nodes, shared=True, splits=2, queues=2)
    assert finishes(case, tmp_path) == [30835] * 4  # 59,110 in one direction


def test_what_an_npu_is_to_do_in_one_instant_is_done_in_a_row_behind_the_first_of_it(tmp_path):
    """Credits of windows come back with other messages' arrivals, which are behind those that were due before them."""
    late = [node("COMP", duration_micros=0), collective("ALL_REDUCE", 73, 1, [0])]
    case = case_of([("Ring", 8)], lambda npu: [collective("ALL_REDUCE", 73)] if npu % 2 else late, algorithm="direct5")
    case["system"]["endpoint-delay"], case["topology"]["dims"][0]["latency_ns"] = 47, 1
    assert finishes(case, tmp_path) == Simulation(case).run()["finish_ns"] == [240, 241] * 4


def test_a_decomposed_all_reduce_gathers_anticlockwise_in_its_only_queue(tmp_path):
    case = case_of([("Ring", 3), ("Ring", 2)], late(1, "ALL_REDUCE", 65536))
    assert finishes(case, tmp_path) == [54310, 55216, 54310, 53607, 54513, 53607]


def test_under_rendezvous_an_npu_asks_before_it_sends_what_it_was_asked_for_already(tmp_path):
    case = case_of([("Switch", 2)], late(1, "ALL_GATHER", 65536), shared=True, rendezvous=True)
    assert finishes(case, tmp_path) == [53612, 54764]


def test_who_comes_first_of_two_directions_differs_from_npu_to_npu(tmp_path):
    nodes, dims = [collective("REDUCE_SCATTER", 1 << 20)], [("FullyConnected", 4)]
    case = case_of(dims, lambda _: nodes, shared=True, splits=4, queues=3, algorithm="direct1")
    assert finishes(case, tmp_path) == [10960, 11460, 12680, 12680]


def test_who_receives_the_first_message_of_a_round_goes_on_first(tmp_path):
    """After six rounds on a ring of four NPU 2 is the first to load; nobody leaves the collective before another."""
    nodes = [collective("ALL_REDUCE", 65536), node("MEM_LOAD", 1, [0], tensor_size=1000)]
    pool = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 0, "remote-mem-bw": 1}
    found = finishes(case_of([("Ring", 4)], lambda _: nodes) | {"remote_memory": pool}, tmp_path)
    assert found == [min(found) + 1000 * ((npu - 2) % 4) for npu in range(4)]


def test_what_follows_a_computation_without_data_waits_for_the_next_thing_to_end(tmp_path):
    """The roofline passes such a node over without a completion, and only completions look for nodes to start."""
    without, other = node("COMP", num_ops=1000, tensor_size=0), node("COMP", 1, num_ops=16000, tensor_size=16000)
    case = case_of([("Ring", 4)], lambda _: [without, other, collective("ALL_GATHER", 65536, 2, [0])])
    case["system"] |= {"roofline-enabled": 1, "peak-perf": 1000}
    alone = case_of([("Ring", 4)], lambda _: [collective("ALL_GATHER", 65536)])
    assert finishes(case, tmp_path) == [10 + finish_ns for finish_ns in finishes(alone, tmp_path)]


def test_two_npus_meet_whichever_way_they_go_round(tmp_path):
    """NPU 1 takes its second turn of two queues, NPU 2 its first: one goes clockwise, the other anticlockwise."""
    groups = {"1": [0, 1], "2": [1, 2]}
    first, second = collective("ALL_GATHER", 65536), collective("ALL_GATHER", 65536, 1, [0])
    nodes = {0: [first | {"pg_name": "1"}], 1: [first | {"pg_name": "1"}, second | {"pg_name": "2"}]}
    nodes |= {2: [second | {"pg_name": "2", "data_deps": []}], 3: [node("COMP", duration_micros=1)]}
    case = case_of([("Switch", 4)], nodes.__getitem__, queues=2) | {"comm_groups": groups}
    once = 10 + int(2 * 500 + 65536 / (50 * 2**30 / 1e9)) + 10
    assert finishes(case, tmp_path) == [once, once + 10 + 10, 2 * once, 1000]  # NPU 2's message is there already


def test_what_only_an_invalid_node_makes_ready_never_starts(tmp_path):
    nodes = [node("INVALID"), node("COMP", 1, [0], duration_micros=1)]
    with pytest.raises(DeadlockError, match="never starts node_1"):
        finishes(case_of([("Switch", 2)], lambda _: nodes), tmp_path)


@pytest.mark.parametrize("shared", [False, True])
def test_npus_that_send_another_collective_first_wait_for_ever(tmp_path, shared):
    both = [collective("ALL_GATHER", 64), collective("ALL_REDUCE", 64, 1)]
    swapped = [collective("ALL_REDUCE", 64), collective("ALL_GATHER", 64, 1)]
    case = case_of([("Switch", 2)], lambda npu: swapped if npu else both, shared=shared)
    with pytest.raises(DeadlockError, match="NPU 1 has all_reduce 'node_0' of 64 bytes in its place"):
        finishes(case, tmp_path)


@pytest.mark.parametrize("rendezvous", [False, True])
def test_members_that_come_with_different_turns_go_round_different_ways(tmp_path, rendezvous):
    late_turn = [node("COMM_COLL", collective="ALL_GATHER", bytes=64, pg_name="1")]
    common = [node("COMM_COLL", 1, collective="ALL_TO_ALL", bytes=4096, pg_name="2")]
    nodes = [common, [*late_turn, *common], common, late_turn]
    case = case_of([("Switch", 4)], lambda npu: nodes[npu], queues=2, rendezvous=rendezvous, algorithm="direct")
    case["comm_groups"] = {"1": [3, 1], "2": [0, 1, 2]}
    assert finishes(case, tmp_path) == Simulation(case).run()["finish_ns"]


def test_under_rendezvous_a_receiver_asks_for_a_message_of_any_size(tmp_path):
    sends = [node("COMM_SEND", at, src=0, dst=1, tag=0, bytes=size) for at, size in enumerate((1 << 20, 64))]
    takes = [node("COMM_RECV", at, src=0, dst=1, tag=0, bytes=size) for at, size in enumerate((64, 1 << 20))]
    case = case_of([("Switch", 2)], lambda npu: takes if npu else sends, shared=True, rendezvous=True)
    assert finishes(case, tmp_path) == Simulation(case).run()["finish_ns"]


def test_a_communicator_takes_its_own_two_trees_in_turns_whatever_the_machine_has_taken(tmp_path):
    def nodes(npu):
        own = [collective("ALL_REDUCE", 4096, 1, [0]) | {"pg_name": "1"}] if npu in (0, 1) else []
        return [collective("ALL_REDUCE", 4096), *own]

    case = case_of([("Switch", 4)], nodes, shared=True, algorithm="doubleBinaryTree")
    case["comm_groups"] = {"1": [0, 1]}
    found = finishes(case, tmp_path)
    assert found == Simulation(case).run()["finish_ns"]
    assert found[1] < found[0]  # the root of the first tree, its highest member


@pytest.mark.parametrize(
    ("key", "orders"),
    [
        ("inter-dimension-scheduling", ("roundRobin", "themis", "themisFlex")),
        ("intra-dimension-scheduling", ("SCF", "RG", "lessRemainingPhaseFirst")),
    ],
)
@pytest.mark.parametrize("kind", ["ALL_REDUCE", "ALL_GATHER", "ALL_TO_ALL"])
def test_orders_of_dimensions_and_of_chunks_have_no_effect(key, orders, kind, tmp_path):
    """No key of 2.x sets them: a collective of several chunks takes what it takes without."""
    case = case_of([("Ring", 4), ("Switch", 2), ("Ring", 3)], lambda _: [collective(kind, 100_000)], splits=7)
    usual = finishes(case, tmp_path)
    for order in orders:
        case["system"][key] = order
        report = run(**second_generation(case, tmp_path)).to_dict()
        assert report["warnings"] == [f"profile astra-sim-2 ignores {key}, as its original does"]
        assert finishes(case, tmp_path) == usual


def test_gangs_decide_behind_an_instant_of_congested_links(tmp_path):
    """Without the rule on who begins, a message that takes no time went round for ever in its nanosecond."""
    ends = {"src": 0, "dst": 2, "bytes": 6, "tag": 0}
    first = collective("ALL_REDUCE", 65535)
    more = {0: [node("COMM_SEND", 1, **ends)], 2: [node("COMM_RECV", 1, [0], **ends)]}
    case = case_of([("FullyConnected", 6)], lambda npu: [first, *more.get(npu, ())], shared=True, algorithm="direct")
    case["topology"]["dims"][0] |= {"bandwidth_GBps": 12.5, "latency_ns": 0}
    rows = run(**second_generation(case, tmp_path), explain_profile=True).to_dict()["profile_rules"]
    assert all(row["time_ns"] or row["refused"] for row in rows)
