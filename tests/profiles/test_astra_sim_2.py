"""Rules of ASTRA-sim 2.x in their smallest cases; the figures are its own (reference, section 15)."""

from math import prod

from simcore.api import run
from tests.published.peers import second_generation
from tests.published.test_astra_sim import ranks_of

RING = {"endpoint-delay": 10, "active-chunks-per-dimension": 1, "local-mem-bw": 1600}


def finishes(
    folder, dims, kind, size_bytes, *, shared=False, late=None, splits=1, queues=1, algorithm="ring", rendezvous=False
):
    """When every NPU is done with one collective; NPU `late` computes for 50 us before. `dims` are (kind, NPUs)."""
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    chosen = {f"{name}-implementation": [algorithm] * len(dims) for name in names}
    system = RING | chosen | {"preferred-dataset-splits": splits, "scheduling-policy": "LIFO"}
    node = {"id": 1, "type": "COMM_COLL", "is_cpu_op": False, "collective": kind, "bytes": size_bytes}
    work = {"id": 0, "type": "COMP", "is_cpu_op": False, "duration_micros": 50}
    npus = prod(size for _, size in dims)
    nodes = [[work, node | {"data_deps": [0]}] if npu == late else [node] for npu in range(npus)]
    case = {
        "backend": "congestion_aware" if shared else "congestion_unaware",
        "topology": {
            "dims": [{"type": name, "npus": size, "bandwidth_GBps": 50, "latency_ns": 500} for name, size in dims]
        },
        "system": system | {"collective-optimization": "localBWAware"},
        "workload": {"kind": "nodes", "per_npu": nodes},
        "cli": {"num-queues-per-dim": queues, "rendezvous-protocol": rendezvous},
    }
    report = run(**second_generation(case, folder)).to_dict()
    rows = {rank: row["finish_ns"] for row in report["ranks"] for rank in ranks_of(row["ranks"])}
    return [rows[rank] for rank in range(npus)]


def test_the_second_half_of_the_queues_goes_anticlockwise(tmp_path):
    found = finishes(tmp_path, [("Ring", 4)], "ALL_GATHER", 1 << 20, shared=True, splits=2, queues=2)
    assert found == [30835] * 4  # 59,110 in one direction


def test_a_decomposed_all_reduce_gathers_anticlockwise_in_its_only_queue(tmp_path):
    found = finishes(tmp_path, [("Ring", 3), ("Ring", 2)], "ALL_REDUCE", 65536, late=1)
    assert found == [54310, 55216, 54310, 53607, 54513, 53607]


def test_under_rendezvous_an_npu_asks_before_it_sends_what_it_was_asked_for_already(tmp_path):
    found = finishes(tmp_path, [("Switch", 2)], "ALL_GATHER", 65536, shared=True, late=1, rendezvous=True)
    assert found == [53612, 54764]


def test_who_comes_first_of_two_directions_differs_from_npu_to_npu(tmp_path):
    dims = [("FullyConnected", 4)]
    found = finishes(tmp_path, dims, "REDUCE_SCATTER", 1 << 20, shared=True, splits=4, queues=3, algorithm="direct1")
    assert found == [10960, 11460, 12680, 12680]
