"""Laws of profile astra-sim-1.0 on random cases of all its features; the original need not be there."""

from copy import deepcopy
from dataclasses import replace
from math import ceil, log2, prod
from random import Random
from unittest import mock

import pytest

from simcore.api import run
from simcore.engine import transports
from simcore.errors import DeadlockError
from simcore.profiles import profiles
from simcore.system.transport import CongestionFree, Played
from tests.laws.cases_astra_sim_1 import KINDS, answer, case, layer, machine, random_case, system
from tests.published.peers import first_generation

SEEDS = range(12)
COLUMNS = ("fwd", "ig", "wg")


def played(env, ranks, delay, costs, barrier, **_):
    """Every message of every NPU, in place of closed forms."""
    return Played(env, ranks, CongestionFree(env, delay), costs, barrier=barrier, by_size=True)


def outcome(drawn, **changes):
    """The report, or that the run cannot finish."""
    try:
        return answer(drawn, **changes)
    except DeadlockError:
        return DeadlockError


def test_without_folding_every_npu_is_told_of_also_where_all_are_played_anyway(tmp_path):
    """On a memory bus."""
    drawn = random_case(20142)
    npus, files = prod(drawn["network"]["units-count"]), first_generation(drawn, tmp_path)
    folded, unfolded = (run(**files, no_fold=no_fold).to_dict() for no_fold in (False, True))
    assert drawn["system"]["model-shared-bus"] and (folded.pop("classes"), unfolded.pop("classes")) == (1, npus)
    assert unfolded == folded


@pytest.mark.parametrize("seed", [*SEEDS, 20142])  # the last: on a memory bus
def test_folded_unfolded_and_message_by_message_are_the_same(seed):
    """Whatever is drawn; with an NPU slower than the others, too, and where they then wait for ever."""
    drawn, slow = random_case(seed), {"straggler": ("1=1.5",)} if seed % 2 else {}
    folded = outcome(drawn, **slow)
    assert outcome(drawn, no_fold=True, **slow) == folded
    with mock.patch.object(transports, "SolvedOrPlayed", played):
        assert outcome(drawn, no_fold=True, **slow) == folded


@pytest.mark.parametrize("seed", SEEDS)
def test_names_and_the_order_of_keys_do_not_matter(seed):
    drawn = random_case(seed)
    other = deepcopy(drawn)
    other["network"] = dict(reversed(drawn["network"].items()))
    other["system"] = dict(reversed(drawn["system"].items()))
    for number, row in enumerate(other["workload"]["layers"]):
        row |= {"name": f"r{number}", "reserved": number}
    found, expected = answer(other), answer(drawn)
    assert [row | {"name": "row"} for row in found.pop("layers")] == expected.pop("layers")
    assert found["time_ns"] == expected["time_ns"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_last_dimension_of_one_npu_changes_nothing(seed):
    drawn = random_case(seed)
    drawn["system"]["inter-dimension-scheduling"] = "ascending"  # the other policies count dimensions
    wider = deepcopy(drawn)
    shape = wider["network"]
    for name, column in shape.items():
        if isinstance(column, list):
            shape[name] = [*column, 1 if name == "units-count" else column[0]]
    shape["dimensions-count"] += 1
    for kind in KINDS.values():
        wider["system"][f"{kind}-implementation"] += "_ring"
    assert answer(wider)["time_ns"] == answer(drawn)["time_ns"]


@pytest.mark.parametrize("seed", range(24))
def test_a_last_dimension_without_algorithms_changes_nothing(seed):
    """Dimensions take turns among those that have one."""
    drawn = random_case(seed)
    drawn["workload"]["header"] = "HYBRID_MODEL_DATA"
    drawn["system"]["inter-dimension-scheduling"] = "roundRobin"
    for row in drawn["workload"]["layers"]:
        row.pop("policy", None)
    wider = deepcopy(drawn)
    shape = wider["network"]
    shape |= {name: [*column, column[0]] for name, column in shape.items() if isinstance(column, list)}
    shape["dimensions-count"] += 1
    assert answer(wider)["layers"] == answer(drawn)["layers"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("factor", [3])
def test_a_factor_on_all_times_is_a_factor_on_the_answer(seed, factor):
    """Where messages have no weight: what they weigh is cut to whole nanoseconds."""
    drawn = random_case(seed)
    shape, rules = drawn["network"], profiles.get("astra-sim-1.0")
    for name in ("link-latency", "nic-latency", "router-latency"):
        shape[name] = [ceil(value) for value in shape[name]]
    shape |= {name: [value] * len(shape["units-count"]) for name, value in (("link-bandwidth", 1e9), ("hbm-scale", 0))}
    drawn["run"] |= {"compute_scale": 1}
    drawn["system"] |= {"model-shared-bus": 0}
    slower = deepcopy(drawn)
    for name in ("link-latency", "nic-latency", "router-latency"):
        slower["network"][name] = [factor * value for value in shape[name]]
    slower["system"]["endpoint-delay"] *= factor
    for row in slower["workload"]["layers"]:
        row["update"] *= factor
        row |= {column: (row[column][0] * factor, *row[column][1:]) for column in COLUMNS}
    weightless = replace(rules, reduction=lambda _: lambda _: 0)
    with mock.patch.object(profiles, "get", lambda _: weightless):
        once = answer(drawn)
    with mock.patch.object(profiles, "get", lambda _: replace(weightless, step_ns=factor)):
        assert answer(slower)["time_ns"] == factor * once["time_ns"]


@pytest.mark.parametrize("seed", range(40))
def test_one_chunk_in_one_dimension_takes_what_the_closed_form_says(seed):
    """The table of phase times that was restated from the original's source and checked on its figures."""
    draw = Random(seed)  # noqa: S311
    size, links, delay_ns = draw.choice((2, 4, 8, 16)), draw.choice((1, 3)), draw.choice((1, 10, 37))
    kind = draw.choice(tuple(KINDS))
    names = ["ring", "direct"] if kind == "ALLTOALL" else ["ring", "direct", "halvingDoubling"]
    name = draw.choice([*names, "doubleBinaryTree"] if kind == "ALLREDUCE" else names)
    size_bytes = draw.choice((64, 4111, 1 << 24, draw.randint(64, 1 << 26)))
    shape = {"link_latency": 0.5, "link_bandwidth": 37.7, "nic_latency": 0.7, "router_latency": 20}
    network = machine(["Switch"], [size], links_count=links, hbm_latency=1, hbm_bandwidth=13, hbm_scale=0.5, **shape)
    found = answer(case("MICRO", [layer(wg=(0, kind, size_bytes))], network, system(name, endpoint_delay=delay_ns)))

    def message_ns(sent):
        on_link = int(int(int(2 * 0.5) + sent / (37.7 * 2**30 / 1e9 * links)) + 2 * 0.7 + 20)
        return max(on_link, (1 + sent / 13) * 0.5)

    assert abs(found["time_ns"] - 1 - phase_ns(kind, name, size, size_bytes, delay_ns, message_ns)) < 1


def phase_ns(kind, name, size, data, delay_ns, message_ns):
    """Messages, endpoint delays, and reductions of 3 ns for every whole 500,000 bytes."""
    share, reduces = data if kind == "ALLGATHER" else data // size, kind in {"ALLREDUCE", "REDUCESCATTER"}
    levels, halves = int(log2(size)), 2 if kind == "ALLREDUCE" else 1
    if name == "ring":
        steps = size * (size - 1) // 2 if kind == "ALLTOALL" else halves * (size - 1)
        reduced = (size - 1) * _reduction_ns(share) if reduces else 0
        return steps * message_ns(share) + (steps + 1) * delay_ns + reduced
    if name == "direct":
        reduced = _reduction_ns(share) if reduces else 0
        return halves * message_ns(share) + (halves + 1) * delay_ns + reduced
    if name == "doubleBinaryTree":
        messages = 2 * levels * message_ns(data)
        return messages + (2 * levels + 1) * delay_ns + (2 * levels - 1) * _reduction_ns(data)
    sent = [data << level for level in range(levels)] if kind == "ALLGATHER" else []
    sent = sent or [data >> level for level in range(1, levels + 1)]
    back = [(sent[-1] // 2) << level for level in range(1, levels + 1)] if kind == "ALLREDUCE" else []
    reduced = sum(map(_reduction_ns, sent[1:])) if reduces else 0
    return sum(map(message_ns, sent + back)) + (len(sent + back) + 1) * delay_ns + reduced


def _reduction_ns(size_bytes):
    return 3 * (size_bytes // 500_000)
