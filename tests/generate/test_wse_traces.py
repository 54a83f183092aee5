"""The core level against the generator's own traces, and laws that tie it to the node level."""

import json
from collections import Counter, defaultdict
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.generate.wse.nodes import Job, exchanges, steps
from simcore.generate.wse.program import line, tiled
from simcore.generate.wse.tiling import Tiling, autotile, read_tiling
from simcore.generate.wse.traces import instructions
from simcore.generate.wse.traffic import matrix, node_step
from tests.generate.test_wse_nodes import SYSTEMS
from tests.generate.wse import DEEPSEEK, SMALL, SMALL_LLAMA, job, of_settings, oracle, rows, system

# The routing behind the two stored traces, recovered from the first one's rows: experts of each of the four sequences.
ROUTING = [
    [3, 64, 85, 86, 92, 99, 129, 198],
    [14, 17, 101, 147, 203, 210, 216, 218],
    [29, 33, 51, 106, 107, 157, 174, 225],
    [58, 63, 110, 112, 121, 185, 228, 241],
]


def test_tiles_are_the_generators_own():
    """84 rows of its autotiler: oracle/wse.json."""
    table = oracle()["core_level"]["autotile_[layer,core_grid,dims,tile]"]
    assert len(table) == 84
    assert [list(autotile(tuple(dims), prod(grid))) for _, grid, dims, _ in table] == [tile for *_, tile in table]


def _stored(name):
    """(program, what the generator counted) of one of its two traces."""
    case = oracle()["core_level"][name]
    routing = np.array(ROUTING).T.reshape(8, 4, 1)
    made = Job(
        *(DEEPSEEK, of_settings(case["config"]["decode"]), 4, 1000, 1, 0, 2, ("decode10",), "decode"),
        routing={"decode0": {"decode10_moe": routing}},
    )
    step = steps(made)[0]
    return instructions(made, step, exchanges(made, step)), case


@pytest.mark.parametrize("name", ["tr4", "tr4m"])
def test_a_stored_trace_is_reproduced_but_for_the_barriers_it_forgets(name):
    """Numbers, bytes, products per core and traffic between nodes; three barriers of four nodes more."""
    program, case = _stored(name)
    counts, sizes, traffic = Counter(), Counter(), Counter()
    flops, lengths = {}, {}
    for node, cores in enumerate(program.lists):
        for core, held in enumerate(cores):
            kept = [each for each in held if "_moe_barrier_" not in each.comment]
            lengths[f"{node}.{core}"] = len(kept)
            flops[f"{node}.{core}"] = sum(2 * prod(each.arguments) for each in held if each.kind == "GEMM")
            counts.update(each.kind for each in kept)
            for each in (each for each in held if each.kind in {"READ", "WRITE", "COPY", "MULTICAST"}):
                sizes[each.kind] += each.arguments[-1]
                for bank in each.arguments[each.kind in {"COPY", "MULTICAST"} : -1]:
                    traffic[f"{each.kind}:{node}->{bank // 16}"] += each.arguments[-1]
    assert counts == case["op_counts"]
    assert sizes == case["bytes_by_op"]
    assert flops == case["gemm_flops_per_core"]
    assert lengths == case["instructions_per_core"]
    assert traffic == case["node_traffic_bytes"]


def test_the_lines_of_a_stored_trace_are_reproduced():
    """Attention and gate of the last core of node 2, up to where experts come in another order."""
    program, case = _stored("tr4")
    found = [line(number, each).replace("\t\t", "\t") for number, each in enumerate(program.lists[2][15])]
    assert found[:52] == case["sample_trace_node2_core15"][:52]


def _ends(program, node, each):
    """Nodes that the bytes of a COPY or a MULTICAST go to."""
    return [bank // program.cores for bank in each.arguments[1:-1] if bank // program.cores != node]


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("prefill", [False, True])
@pytest.mark.parametrize("model", [SMALL, SMALL_LLAMA], ids=["latent", "grouped"])
def test_cores_compute_what_their_node_computes_and_send_what_it_sends(model, prefill, name):
    """GEMM operations = 2 x multiply-accumulates; bytes that leave a node = those of the node level's flows.

    A flow of an all-reduce is 2 (G - 1) / G of the node level's bytes, of an all-gather the others' parts.
    """
    made = job(
        model,
        SYSTEMS[name],
        phase="prefill" if prefill else "decode",
        prefill_len=6,
        speculative=1,
        layers="decode0,decode2,lm_head",
    )
    step, routed, nodes = rows(made, movement=False)
    macs = [sum(op.macs for op in nodes[node]) for node in range(made.system.nodes)]
    flows = matrix(node_step(made, step, routed).phases, made.system.nodes)
    for spread in (False, True):
        program = instructions(made, step, routed, spread=spread)
        sent = np.zeros((made.system.nodes, made.system.nodes), int)
        for node, cores in enumerate(program.lists):
            flops = sum(2 * prod(each.arguments) for held in cores for each in held if each.kind == "GEMM")
            assert flops == 2 * macs[node]
            for each in (each for held in cores for each in held if each.kind in {"COPY", "MULTICAST"}):
                for target in _ends(program, node, each):
                    sent[node, target] += each.arguments[-1]
        assert (sent == flows).all()


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(sorted(SYSTEMS)),
    model=st.sampled_from([SMALL, SMALL_LLAMA]),
    batch=st.integers(1, 9),
    spread=st.booleans(),
)
def test_no_core_waits_for_ever(name, model, batch, spread):
    """Every barrier meets on its cores, in an order that all agree with; dependencies look back in the same list."""
    made = job(model, SYSTEMS[name], batch=batch, layers="decode0,decode1,decode2")
    step = steps(made)[0]
    program = instructions(made, step, exchanges(made, step), spread=spread)
    lists = [held for cores in program.lists for held in cores]
    members = defaultdict(set)
    waits = []
    for core, held in enumerate(lists):
        assert all(0 <= place < number for number, each in enumerate(held) for place in each.after)
        waits.append([each.arguments[0] for each in held if each.kind == "BARRIER"][::-1])
        for barrier in waits[-1]:
            members[barrier].add(core)
    while any(waits):
        fronts = Counter(held[-1] for held in waits if held)
        met = {barrier for barrier, count in fronts.items() if count == len(members[barrier])}
        assert met
        for held in waits:
            if held and held[-1] in met:
                held.pop()


def test_spread_moves_the_same_bytes_from_more_cores():
    """The core of each bank sends its own part."""
    made = job(on=system(core_grid=(4, 4)))
    step = steps(made)[0]
    routed = exchanges(made, step)
    copies = []
    for spread in (False, True):
        program = instructions(made, step, routed, spread=spread)
        copies.append(
            {
                core: sum(each.arguments[-1] for each in held if each.kind == "COPY")
                for core, held in enumerate(program.lists[0])
            }
        )
    assert sum(copies[0].values()) == copies[0][0] == sum(copies[1].values())
    assert copies[1][1] > 0


def test_given_tiles_are_kept_for_every_kind(tmp_path):
    """Patterns first, then defaults; null is the full dimension."""
    path = tmp_path / "tiling.json"
    document = {"layers": {"decode*_wo": [None, 8, 16]}, "defaults": {"GroupedLinear": [1, None, None, 4]}}
    document["defaults"]["MLAAbsorbAttention"] = [None, 5]
    path.write_text(json.dumps(document))
    tiling = read_tiling(path)
    assert tiling.of("decode3_wo", "Linear", (4, 32, 64), 16) == (4, 8, 16)
    assert tiling.of("decode3_up", "Linear", (4, 32, 64), 16) == autotile((4, 32, 64), 16)
    assert tiling.of("x", "GroupedLinear", (8, 4, 16, 16), 16) == (1, 4, 16, 4)
    assert tiling.of("x", "MLAAbsorbAttention", (1, 20), 16) == (1, 5)
    made = job(layers="decode0")
    step = steps(made)[0]
    reads = [
        sum(each.kind == "GEMM" and "absorbattn" in each.comment for held in cores for each in held)
        for cores in instructions(made, step, exchanges(made, step), tiling).lists
    ]
    assert reads == [4 * 4 * 2] * 8  # four sequences, four blocks of five positions, two products


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"defaults": {"Linaer": [1, 2, 3]}}, "did you mean 'Linear'"),
        ({"defaults": {"Linear": [1, 2]}}, "\\[M, K, N\\]"),
        ({"layer": {}}, "unknown key"),
        ({"layers": {"decode*_wo": 3}}, "list of sizes"),
        ({"layers": {"decode*_wo": [0, 1, 1]}}, "of at least 1"),
    ],
)
def test_wrong_tiles_are_refused_with_their_place(tmp_path, document, words):
    """Located errors."""
    path = tmp_path / "tiling.json"
    path.write_text(json.dumps(document, indent=1))
    with pytest.raises(InputError, match=words):
        read_tiling(path)


@given(rows=st.integers(1, 9), columns=st.integers(1, 9), tile=st.integers(1, 4), banks=st.integers(1, 5))
def test_tiles_go_to_the_banks_in_row_major_order(rows, columns, tile, banks):
    """The layout of an output."""
    layout = tiled((rows, columns), (rows, tile), banks)
    assert layout[0].tolist() == [column // tile % banks for column in range(columns)]
    assert (layout == layout[0]).all()
    assert Tiling() == Tiling({}, {})
