"""The node level against the generator's own rows, and laws that hold for every configuration."""

import json
from collections import Counter
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from simcore.errors import InputError
from simcore.generate.wse.exchange import Exchange
from simcore.generate.wse.files import dimensions, row
from simcore.generate.wse.nodes import exchanges, footprint_bytes, operations, steps, totals
from simcore.generate.wse.operations import MOVEMENT
from simcore.generate.wse.routing import draw, read_counts, read_routing
from simcore.generate.wse.settings import own_batches, read_system, split
from simcore.model.huggingface import configuration
from tests.generate.wse import DEEPSEEK, SMALL, SMALL_LLAMA, job, of_run, oracle, rows, system

NAMES = (
    "dsv3_16_dp2tp4sp2_allgather_uniform",
    "dsv3_16_dp2tp4sp2_alltoall_empirical",
    "dsv3_16_dp2tp4sp2_multicast_uniform",
    "dsv3_16_identical_top1_alltoall",
    "dsv3_8_dp2tp4_bsz1",
    "dsv3_8_prefill_dp4tp2_multicast",
    "dsv3_8_specdec3",
    "llama_16_dp2tp8",
    "llama_16_tp8sp2",
    "llama_8_prefill_tp4sp2",
)
MOVES = {"Slice", "Concat", "View", "Split", "Transpose", "Sum"}  # not stored
EXCHANGES = ("alltoall", "allgather", "multicast")
SYSTEMS = {
    "experts": system(),
    "sequence": system(dp=1, sp=2),
    "pipeline": system(dp=1, pp=2, ep=4),
    "sliced": system(ep=1, tp_ffn=8, shared_copies=1),
    "gathered": system(exchange="allgather"),
    "multicast": system(exchange="multicast"),
    "replicated": system(ep=4, dp_ffn=2),
    "replicated, gathered": system(dp=4, tp=2, ep=4, dp_ffn=2, exchange="allgather"),
    "replicated, multicast": system(dp=4, tp=2, ep=2, dp_ffn=4, exchange="multicast"),
    "alone": system(nodes=1, node_grid=(1, 1), dp=1, tp=1, ep=1, shared_copies=1),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_the_generator_is_reproduced(name):
    """Totals per node, number of rows of every kind and the text of every stored row: oracle/wse.json."""
    run = oracle()["runs"][name]
    made = of_run(run)
    for step in steps(made):
        result = run["result"]["iters"].get(step.name)
        if result is None:
            continue
        routed = exchanges(made, step)
        nodes = [list(operations(made, step, node, routed)) for node in range(made.system.nodes)]
        assert totals(made, step, list(range(made.system.nodes)), routed) == result["per_node_[mem,ops,hbm,net]"]
        assert Counter(each.kind for held in nodes for each in held) == result["op_row_counts_all_nodes"]
        assert [sum(each.kind != "Barrier" for each in held) for held in nodes] == result["graph_ops_per_node"]
        for node, expected in result["full_rows"].items():
            found = [row(each).split(";") for each in nodes[int(node)] if each.kind not in MOVES]
            assert found[: len(expected)] == [_shown(each) for each in expected]


def _shown(stored):
    uid, kind, *numbers, group, dims = stored
    return [uid, kind, *map(str, numbers), "N/A" if group is None else str(group), dims]


def test_identical_routing_with_one_choice_is_the_generators_own():
    """58 shuffles in place of one list from numpy's generator at 42: oracle/wse.json."""
    run = oracle()["runs"]["dsv3_16_identical_top1_alltoall"]
    made = of_run(run)
    drawn = draw(made.model, "identical", (64, 1), 0)
    assert (drawn["decode10_moe"] == made.routing["decode0"]["decode10_moe"]).all()


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("prefill", [False, True])
@pytest.mark.parametrize("model", [SMALL, SMALL_LLAMA], ids=["latent", "grouped"])
def test_every_input_of_a_row_is_left_by_an_earlier_row_of_some_node(model, prefill, name):
    """The graph is closed: tensors come from somewhere, names are unique."""
    made = job(model, SYSTEMS[name], phase="prefill" if prefill else "decode", prefill_len=5, speculative=1)
    _, _, nodes = rows(made)
    left = {tensor for held in nodes for each in held for tensor in each.outputs}
    left |= {f"{node}:queries" for node in range(made.system.nodes)}
    assert {tensor for held in nodes for each in held for tensor in each.inputs} <= left
    for held in nodes:
        assert len({each.uid for each in held}) == len(held)
        assert all(dimensions(each) for each in held)


@pytest.mark.parametrize("name", SYSTEMS)
def test_rows_that_only_move_cost_nothing(name):
    """Leaving them out changes no total."""
    made = job(on=SYSTEMS[name], speculative=2)
    _, _, all_rows = rows(made)
    _, _, costly = rows(made, movement=False)
    for mine, theirs in zip(all_rows, costly, strict=True):
        assert [sum(each[place] for each in mine) for place in range(5, 9)] == [
            sum(each[place] for each in theirs) for place in range(5, 9)
        ]


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 40),
    exchange=st.sampled_from(EXCHANGES),
    routing=st.sampled_from(["uniform", "empirical_mmlu"]),
    speculative=st.integers(0, 2),
    copies=st.integers(1, 4),
    dp_ffn=st.sampled_from([1, 2]),
)
def test_what_is_sent_is_received_and_experts_compute_every_choice_once(
    batch, exchange, routing, speculative, copies, dp_ffn
):
    """Conservation over the nodes, for any exchange; the experts' work does not depend on how tokens travel."""
    on = system(exchange=exchange, routing=routing, shared_copies=copies, ep=8 // dp_ffn, dp_ffn=dp_ffn)
    made = job(on=on, batch=batch, speculative=speculative)
    step, routed, nodes = rows(made, movement=False)
    tokens = batch * step.queries
    for layer, each in routed.items():
        assert sum(copy.load.sum() for copy in each) == tokens * 2
        assert sum(copy.combine.sum() for copy in each) == tokens * 3  # two choices and the shared expert
        assert sum(copy.dispatch.sum() for copy in each) <= tokens * 3
        expert_rows = [op for held in nodes for op in held if op.uid.startswith(f"{layer}_moe_exp")]
        assert sum(op.macs for op in expert_rows) == tokens * 3 * 3 * 64 * 32
        sends = [op for held in nodes for op in held if op.kind == "AlltoAll" and op.uid.startswith(layer)]
        for uid in {op.uid for op in sends}:
            for group in {op.group for op in sends}:
                table = np.array([[op.shape[1], op.shape[2]] for op in sends if (op.uid, op.group) == (uid, group)])
                assert (table[:, 0] == table[:, 1].T).all()


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 24), st.sampled_from(EXCHANGES), st.sampled_from([1, 2]), st.booleans())
def test_every_copy_of_the_experts_does_what_a_wafer_of_its_own_does_with_its_sequences(batch, exchange, dp, prefill):
    """dp_ffn copies of four nodes with `dp` clusters each: nothing crosses from one to another."""
    small = system(nodes=4, node_grid=(1, 4), dp=dp, tp=4 // dp, ep=4, shared_copies=2, exchange=exchange)
    large = structs.replace(small, nodes=8, node_grid=(2, 4), dp=2 * dp, dp_ffn=2)
    whole = job(on=large, batch=batch * dp, phase="prefill" if prefill else "decode", prefill_len=3)
    step, routed, _ = rows(whole, movement=False)
    apart = [{name: [structs.replace(copies[number], first=0)] for name, copies in routed.items()} for number in (0, 1)]
    parts = [len(each.source) for each in routed["decode1"]]
    alone = [structs.replace(whole, system=small, batch=count) for count in parts]
    expected = [totals(each, step, [0, 1, 2, 3], own) for each, own in zip(alone, apart, strict=True)]
    assert totals(whole, step, list(range(8)), routed) == expected[0] + expected[1]
    assert footprint_bytes(whole, list(range(8))) == [
        node for each in alone for node in footprint_bytes(each, [0, 1, 2, 3])
    ]


@settings(max_examples=25, deadline=None)
@given(count=st.integers(0, 200), buckets=st.integers(1, 20))
def test_a_split_covers_every_item_once_and_is_even(count, buckets):
    """Contiguous, in order, sizes differ by at most one, larger ones first."""
    parts = split(count, buckets)
    assert [item for part in parts for item in part] == list(range(count))
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(batch=st.integers(0, 60))
def test_every_sequence_has_one_source(batch):
    """Clusters and ranks together own each sequence once."""
    on = system(dp=2, tp=2, sp=2)
    assert sorted(b for node in range(8) for b in own_batches(on, batch, node)) == list(range(batch))


def test_pipeline_stages_hold_all_layers_once():
    """The peer refuses pp > 1; here the work of all stages is that of one stage without pipelining."""
    whole = job(on=system(nodes=4, node_grid=(1, 4), dp=1, ep=4))
    piped = job(on=SYSTEMS["pipeline"])
    one, _, _ = (sum(op.macs for held in rows(whole)[2] for op in held), 0, 0)
    assert one == sum(op.macs for held in rows(piped)[2] for op in held)
    sent = [op for held in rows(piped)[2] for op in held if op.uid.endswith("_pp")]
    assert [(op.group, op.network_bytes) for op in sent] == [((node,), 8 * 64 * 2) for node in (4, 5, 6, 7)]


@pytest.mark.parametrize("phase", ["decode", "prefill", "train"])
@given(tp=st.sampled_from([1, 2, 4, 8]), sp=st.sampled_from([1, 2]), batch=st.integers(1, 9))
def test_attention_and_feed_forward_side_by_side_have_one_sum(phase, tp, sp, batch):
    """Of their outputs, and one of the gradients of their input (GPT-J's block); all else is as one after the other."""
    cluster = min(8, tp * sp)
    on = system(tp=tp, sp=cluster // tp, dp=8 // cluster, ep=1, tp_ffn=8, shared_copies=1)
    parts = [
        Counter((op.uid, op.macs, op.hbm_bytes, op.group) for op in held if op.kind not in MOVEMENT)
        for shape in (SMALL_LLAMA, replace(SMALL_LLAMA, parallel_block=True))
        for held in rows(job(shape, on, batch=batch, phase=phase))[2][:1]
    ]
    ends = ("_ar_tp", "_ar_tp_dgrad") if phase == "train" else ("_ar_tp",)
    names = sorted(uid for uid, *_ in parts[0] - parts[1])
    assert not parts[1] - parts[0]
    assert names == sorted(f"decode{layer}_attn{end}" for layer in range(4) for end in ends if tp > 1)


def test_sliced_experts_do_the_work_of_whole_ones():
    """tp_ffn over eight nodes: each does an eighth of every expert for all tokens (the peer crashes)."""
    whole, sliced = (job(on=SYSTEMS[name], layers="decode2") for name in ("experts", "sliced"))
    work = [sum(op.macs for held in rows(each)[2] for op in held if "_exp_" in op.uid) for each in (whole, sliced)]
    assert work[0] == work[1]


@settings(max_examples=20, deadline=None)
@given(top_k=st.integers(1, 6), rounds=st.integers(1, 4))
def test_identical_routing_is_equal_for_all_experts_and_repeats_none(top_k, rounds):
    """The peer crashes for more than one choice."""
    experts = replace(SMALL.experts, top_k=top_k)
    (array, *_) = draw(replace(SMALL, experts=experts), "identical", (16 * rounds, 1), 0).values()
    if top_k > 1:
        assert (np.bincount(array.ravel(), minlength=16) == top_k * rounds).all()
    ordered = np.sort(array, axis=0)
    assert (ordered[1:] != ordered[:-1]).all()


def test_the_footprint_holds_every_expert_whatever_the_routing():
    """Weights of all experts of a node, independent of who is visited."""
    seeds = [footprint_bytes(job(seed=seed), list(range(8))) for seed in (1, 2)]
    assert seeds[0] == seeds[1]
    one_more = footprint_bytes(job(decode_len=2), list(range(8)))
    assert [after - before for before, after in zip(seeds[0], one_more, strict=True)] == [4 * 4 * 20 * 2] * 8


@given(st.sampled_from(sorted(set(SYSTEMS) - {"pipeline"})), st.integers(1, 40))
def test_the_footprint_has_all_experts_and_copies_in_a_wafer_s_memory(name, batch):
    """Each routed expert once on every copy of the experts, the shared expert as often as there are copies of it."""
    on, nodes = SYSTEMS[name], range(SYSTEMS[name].nodes)
    held = sum(footprint_bytes(job(on=on, batch=batch, layers="decode1"), list(nodes)))
    bare = replace(SMALL, experts=None)
    attention = sum(footprint_bytes(job(bare, on, batch=batch, layers="decode1"), list(nodes)))
    dense = ceil(bare.ffn / on.cluster_nodes) * on.nodes
    experts = 32 * on.dp_ffn * (16 + on.shared_copies)
    assert held - attention == 2 * 64 * (16 * on.nodes + 3 * (experts - dense))


def test_the_number_of_clusters_does_not_make_a_footprint_dear(monkeypatch):
    """It looks at as few tokens as there must be, not at those for each cluster of nodes."""
    seen, of = [], Exchange.of
    monkeypatch.setattr(Exchange, "of", lambda *given: seen.append(given[0].shape[1]) or of(*given))
    footprint_bytes(job(on=system(nodes=64, node_grid=(8, 8), dp=64, tp=1, ep=64), batch=8), [0])
    assert seen == [64]


def test_the_substitute_of_the_empirical_counts_spreads_as_measured():
    """Coefficient of variation of tokens per expert near 0.55; measured on MMLU: 0.34 to 1.05 by layer."""
    drawn = draw(DEEPSEEK, "empirical_mmlu", (512, 4), 0)
    spread = [load.std() / load.mean() for load in map(np.bincount, (array.ravel() for array in drawn.values()))]
    assert 0.45 < np.mean(spread) < 0.7


def test_measured_counts_are_read_as_published_and_drawn_as_measured(tmp_path):
    """The busiest of 32 nodes gets 1.85 and 2.63 times the mean; the substitute's neighbours are independent."""
    measured = json.loads((Path(__file__).parent / "measured_routing.json").read_text())
    layers = [measured["0"], measured["4"]]
    path = tmp_path / "bincounts.json"
    path.write_text(json.dumps({str(place): list(map(float, own)) for place, own in enumerate(layers)}))
    counts = read_counts(path, replace(DEEPSEEK, layers=5))
    assert counts.tolist() == layers
    drawn = draw(replace(DEEPSEEK, layers=5), "empirical_mmlu", (1024, 8), 0, counts)
    loads = [np.bincount(array.ravel(), minlength=256).reshape(32, 8).sum(axis=1) for array in drawn.values()]
    nodes = counts.reshape(-1, 32, 8).sum(axis=2)
    busiest = [load.max() / load.mean() for load in nodes]
    assert busiest == pytest.approx([1.850, 2.632], abs=1e-3)
    assert [load.max() / load.mean() for load in loads] == pytest.approx(busiest, rel=0.12)
    path.write_text('{"0": [1.5]}')
    with pytest.raises(InputError, match="do not fit"):
        read_counts(path, replace(DEEPSEEK, layers=4))


def test_counts_that_sglang_recorded_are_those_of_the_expert_layers_in_all_passes(tmp_path):
    """`logical_count` of its expert distribution recorder, which `--init-expert-location` reads back."""
    own, path = [[*range(1, 257)], [*range(256, 0, -1)]], tmp_path / "recorded.json"
    once, dense = np.array(own), [[0] * 256] * 3
    for recorded, counts in ((own, once), (dense + own, once), ([dense + own] * 2, 2 * once)):
        path.write_text(json.dumps({"rank": 0, "logical_count": recorded}))
        assert (read_counts(path, replace(DEEPSEEK, layers=5)) == counts).all()
    path.write_text('{"logical_count": [[1, 2], [3]]}')
    with pytest.raises(InputError, match="several lengths"):
        read_counts(path, replace(DEEPSEEK, layers=5))


def _config(**changes):
    small = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100}
    small |= {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    return {key: value for key, value in (small | changes).items() if value is not None}


def test_a_config_of_the_family_is_read_with_keys_that_do_not_matter(tmp_path):
    """Hugging Face's config.json holds much besides the shape."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(_config(rope_scaling={"factor": 8.0}, torch_dtype="bfloat16")))
    assert configuration(path) == replace(SMALL_LLAMA, name=tmp_path.name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["LlamaForCausalLm"]}, "did you mean 'LlamaForCausalLM'"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"architectures": None}, "architectures"),
    ],
)
def test_a_wrong_config_is_refused_with_its_place(tmp_path, changes, words):
    """Located errors."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(_config(**changes), indent=1))
    with pytest.raises(InputError, match=words) as error:
        configuration(path)
    assert str(error.value).startswith(f"{path}:")


def _settings(**changes):
    degrees = {"num_nodes": 8, "node_grid": [2, 4], "core_grid": [2, 2], "dp_attn": 2, "dp_ffn": 1, "tp_attn": 4}
    degrees |= {"tp_ffn": 1, "pp": 1, "sp": 1, "ep": 8, "n_redundant_shared_exp": 2}
    return degrees | {"expert_workload_model": "uniform", "moe_comm": "alltoall"} | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node_grid": [3, 3]}, "rows x columns"),
        ({"core_grid": [1 << 15, 2]}, "at most 32,768"),
        ({"dp_ffn": 4, "ep": 2}, "a multiple of tp_attn"),
        ({"dp_ffn": 2, "ep": 4, "n_redundant_shared_exp": 5}, "at most one copy"),
        ({"ep": 4, "tp_ffn": 2}, "1 when ep > 1"),
        ({"tp_ffn": 8, "ep": 1}, "experts are tensor parallel"),
        ({"tp_attn": 2}, "dp_attn \\* tp_attn"),
        ({"moe_comm": "all2all"}, "alltoall"),
        ({"exprt": 1}, "unknown key"),
        ({"n_redundant_shared_exp": 9}, "at most one copy"),
    ],
)
def test_degrees_that_do_not_fit_are_refused_with_their_place(tmp_path, changes, words):
    """The peer's assertions, located."""
    path = tmp_path / "system.json"
    path.write_text(json.dumps({"decode": _settings(**changes)}, indent=1))
    with pytest.raises(InputError, match=words) as error:
        read_system(path, "decode")
    assert str(error.value).startswith(f"{path}:")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('{"decode0": {"decode2_moe": [[[0]]]}}', "another shape"),
        ('{"decode9": {}}', "no such step"),
        ('{"decode0": {"decode0_moe": []}}', "no such expert layer"),
        ('{"decode0": {"decode2_moe": [[[1]], [[1]]]}}', "twice"),
        ('{"decode0": {"decode2_moe": [[[1]], [[16]]]}}', "no such expert"),
        ('{"decode0": {"decode2_moe": [[[1]], [[2, 3]]]}}', "differ in length"),
        ('{"decode0": {"decode2_moe": 3}}', "decode2_moe|array"),
        ('{"decode0": ', "not well-formed"),
    ],
)
def test_a_wrong_routing_file_is_refused(tmp_path, document, words):
    """Every problem names the step and the layer."""
    path = tmp_path / "routing.json"
    path.write_text(document)
    with pytest.raises(InputError, match=words):
        read_routing(path, SMALL, 1, {"decode0": 1})


def test_counts_choose_the_experts_that_have_tokens(tmp_path):
    """Experts without tokens are never drawn."""
    path = tmp_path / "counts.json"
    path.write_text(json.dumps([[0] * 12 + [5, 1, 1, 9]] * 3))
    counts = read_counts(path, SMALL)
    drawn = draw(SMALL, "empirical_mmlu", (50, 2), 0, counts)
    assert {expert for array in drawn.values() for expert in array.ravel().tolist()} == {12, 13, 14, 15}
    wrong = {"[[1, 2]]": "do not fit", json.dumps([[-1] + [5] * 15] * 3): "negative", "[1]": "expected: lists of"}
    for text, words in wrong.items():
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_counts(path, SMALL)
