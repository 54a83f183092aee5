import json
import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from math import inf
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simcore.cli import main
from simcore.cost.predict import lower_bound_s, mean_bound_s, predict, stage_bound_s
from simcore.cost.search import SLOWEST, Candidate, Study, axes, read_study, rivals, search, sized
from simcore.cost.systems import CLUSTERS
from simcore.errors import InputError
from simcore.front import front
from simcore.model.effects import idle
from simcore.model.memory import peak
from simcore.model.plan import Plan, check
from simcore.model.shape import Experts, Model
from simcore.workload.loops import schedules

GPT = Model("gpt", 8, 2048, 16, 8192, 32000, gated=False, tied=True, positions=1024, norm="layer")
UNEVEN = replace(GPT, layers=7)
SELENE = CLUSTERS["selene"]
SCHEDULES = [name for name in schedules.names() if name != "interleaved"]


MIXTURE = replace(GPT, experts=Experts(4, 2, 2048, 2048, 2))
LEVELS = st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=2, unique=True)


@settings(max_examples=12, deadline=None)
@given(
    model=st.sampled_from([UNEVEN, MIXTURE]),
    gpus=st.sampled_from([4, 8]),
    top=st.integers(1, 4),
    share=st.sampled_from([1.0, 0.3]),
    words=st.sampled_from([{}, {"overlap": True}, {"offload": ("activations", "weights")}, {"lora_rank": 8}]),
    zero=LEVELS,
    schedule=st.lists(st.sampled_from(SCHEDULES), min_size=1, max_size=3, unique=True),
)
def test_pruning_finds_what_trying_everything_finds(model, gpus, top, share, words, zero, schedule):
    plan, limit = Plan(gpus, 1024, global_batch=16, **words), int(share * 20e9)
    axes_ = {"schedule": schedule, "zero": zero, "micro_batch": (1, 4)}
    study = Study(model, plan, gpus, CLUSTERS["selene"], **axes_, memory_bytes=limit)
    found = search(study, top)
    plans = [one for one, size in sized(study).items() if size <= limit]
    everything = [Candidate(one, peak(model, one).total, predict(model, one, study.cluster)) for one in plans]
    times = sorted(one.step_s for one in everything)
    assert [one.step_s for one in found.best] == times[:top]
    assert found.simulated <= found.fitting == len(plans)
    unbeaten = front(everything, attrgetter("step_s"), attrgetter("memory_bytes"))
    expected = [one for one in unbeaten if one.step_s <= SLOWEST * times[0]]
    assert [(one.step_s, one.memory_bytes) for one in found.front] == [
        (one.step_s, one.memory_bytes) for one in expected
    ]
    leaders = dict[tuple[str, object], float]()
    for one in everything:
        leaders |= {choice: min(one.step_s, leaders.get(choice, inf)) for choice in axes(one.plan).items()}
    assert {choice: one.step_s for choice, one in found.leaders.items()} == leaders


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from([UNEVEN, replace(MIXTURE, layers=7), replace(GPT, heads=32)]),
    tp=st.sampled_from([1, 2, 8, 16]),
    pp=st.sampled_from([1, 2, 3]),
    ep=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2]),
    chunks=st.integers(1, 3),
    schedule=st.sampled_from(["1f1b", "zb-v"]),
    zero=st.integers(0, 3),
)
def test_what_a_study_lists_is_tried_where_a_prediction_takes_it(model, tp, pp, ep, dp, chunks, schedule, zero):
    """Also tensor ranks of several nodes, chunks that do not divide the layers, experts that tensor ranks share."""
    folded = 2 if schedule == "zb-v" else chunks
    chosen = {"tp": tp, "pp": pp, "ep": ep, "virtual_stages": folded, "zero": zero, "sequence_parallel": tp > 1}
    named = "" if pp == 1 else "interleaved" if schedule == "1f1b" and chunks > 1 else schedule
    plan = Plan.of(1536, 6 * dp * pp, dp=dp, schedule=named, **chosen, scatter_pipeline=True, context="ring")
    try:
        check(model, plan)
        assert plan.order
    except InputError:
        assume(False)
    assume(pp > 1 or (chunks == 1 and schedule == "1f1b"))
    assume(not any(idle(model, plan, ["zero"])))
    listed = {name: [value] for name, value in chosen.items() if name != "sequence_parallel"}
    listed |= {"virtual_stages": [1 if schedule == "zb-v" else chunks], "schedule": [schedule], "cp": [1]}
    base = Plan(1, 1536, global_batch=6 * dp * pp, scatter_pipeline=True, context="ring")
    study = Study(model, base, plan.world_size, SELENE, **listed, micro_batch=[1], recompute=["none"], cuts=["even"])
    assert plan.but(schedule=named or "1f1b") in sized(study)


def test_what_a_rival_loses_is_the_sum_of_its_parts():
    plan, axes_ = Plan(16, 1024, global_batch=32), {"micro_batch": (1, 2), "zero": (0, 1), "recompute": ("none",)}
    compared = rivals(search(Study(MIXTURE, plan, 16, CLUSTERS["selene"], **axes_), 2))
    told = [choice.split()[0] for one in compared for choice in one.choice.split(", ")]
    assert set(told) >= {"second", "tp", "pp", "cp", "ep", "zero", "schedule"}
    assert len({one.candidate.plan for one in compared}) == len(compared)
    for one in compared:
        assert one.step_s >= 0
        assert sum(one.parts_s.values()) == pytest.approx(one.step_s, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(schedules.names()),
    model=st.sampled_from([GPT, MIXTURE]),
    pp=st.sampled_from([2, 4]),
    micro=st.sampled_from([1, 2]),
    zero=st.integers(0, 3),
    flags=st.tuples(st.booleans(), st.booleans()),
    offload=st.sampled_from([(), ("weights",), ("activations", "weights")]),
)
def test_no_schedule_beats_its_bounds(name, model, pp, micro, zero, flags, offload):
    """Nor those of plans that share in another way: offloaded, a rank that shares its weights gets fewer."""
    chunks = 2 if name in {"interleaved", "zb-v", "dualpipe"} else 1
    choices = {"schedule": name, "virtual_stages": chunks, "overlap": flags[0], "overlap_pipeline": flags[1]}
    plan = Plan.of(1024, 64, dp=2, micro_batch=micro, pp=pp, zero=zero, offload=offload, **choices)
    bound_s = lower_bound_s(model, plan, SELENE)
    assert predict(model, plan, SELENE).step_s >= bound_s * (1 - 1e-12)
    others = [plan.but(zero=other) for other in range(4)]
    least = [stage_bound_s(model, other, SELENE) for other in others]
    least += [mean_bound_s(model, other, SELENE, shared=False) for other in others]
    assert bound_s >= max(least) * (1 - 1e-12)


@pytest.mark.parametrize("name", schedules.names())
def test_an_outline_is_the_schedule_without_its_cells(name):
    assert schedules.outline(name, 4, 8) == replace(schedules.make(name, 4, 8), order=())


def test_the_front_trades_time_for_memory():
    front = search(Study(GPT, Plan(8, 1024, global_batch=16), 8, CLUSTERS["selene"]), 5).front
    assert [one.step_s for one in front] == sorted(one.step_s for one in front)
    assert [one.memory_bytes for one in front] == sorted((one.memory_bytes for one in front), reverse=True)


STUDY = """
model: {layers: 8, hidden: 2048, heads: 16, ffn: 8192, vocab: 32000}
seq: 1024
accelerators: 8
global_batch: 32
cluster: {accelerator: H100, fabric: hgx-h100}
micro_batch: [1, 2]
"""


def test_a_study_file_is_searched_and_explained(tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    assert main(["search", str(path), "--json", "--top", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "simcore.search/1"
    assert len(document["best"]) == 2
    assert document["why"]
    assert main(["search", str(path)]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("The fastest step takes ") and "tokens/s" in first and "MFU" in first
    assert not any(line.startswith("Why the winner wins") for line in others)
    assert main(["search", str(path), "--explain"]) == 0
    text = capsys.readouterr().out
    assert "Fastest at each memory" in text and "measured steps" in text
    assert "It depends most on" in text.splitlines()[-1] and "H100-SXM-80GB." in text.splitlines()[-1]


CONFIG = "the company's/config.json"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
}


@pytest.mark.parametrize(("schedule", "pp"), [("1f1b", 2), ("dualpipe", 4), ("zb-h1", 4)])
def test_the_best_plan_its_run_and_its_file_take_the_same_time(schedule, pp, tmp_path, capsys, monkeypatch):
    """What a study finds is what `predict --run` and, from the exported file with NCCL's collectives, `run` answer."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    asked = {"model": "config.json", "seq": 1024, "accelerators": 16, "global_batch": 32, "cluster": "h100"}
    asked |= {"tp": [2], "pp": [pp], "micro_batch": [1], "schedule": [schedule], "zero": [1]}
    (tmp_path / "study.json").write_text(json.dumps(asked))
    assert main(["search", "study.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main([*shlex.split(found["predict"])[1:], "--json", "-o", "step.txt"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert predicted["step_s"] == found["best"][0]["step_s"]
    topology = {"topology": ["Switch"] * 3, "npus_count": [2, 16 // 2 // pp, pp], "bandwidth": [50] * 3}
    (tmp_path / "switches.json").write_text(json.dumps(topology | {"latency": [500] * 3}))
    (tmp_path / "nccl.json").write_text(json.dumps({"collectives": "nccl", "nccl-fabric": "hgx-h100"}))
    files = ["--workload", "step.txt", "--topology", "switches.json", "--system", "nccl.json"]
    assert main(["run", *files, "--json"]) == 0
    run_ns = json.loads(capsys.readouterr().out)["time_ns"]
    assert run_ns == round(predicted["run_s"] * 1e9) == pytest.approx(predicted["step_s"] * 1e9, abs=4)


@settings(max_examples=25, deadline=None)
@given(
    software=st.sampled_from(["torchtitan", "deepspeed", "fsdp", "maxtext", "megatron-core"]),
    model=st.sampled_from([CONFIG, "mixtral-8x7b"]),
    words=st.fixed_dictionaries(
        {},
        optional={
            "gradient_bytes": st.sampled_from([2, 4]),
            "gradients_apart": st.booleans(),
            "by_matrix": st.booleans(),
            "optimizer_bytes": st.sampled_from([8, 10, 12]),
            "loss_bytes": st.sampled_from([0, 4, 10]),
            "pad_vocab_to": st.sampled_from([1, 128]),
            "overlap": st.booleans(),
            "fused_attention": st.booleans(),
        },
    ),
    tp=st.sampled_from([1, 2]),
    zero=LEVELS,
)
def test_the_command_for_the_best_plan_says_all_of_it_and_nothing_idle(software, model, words, tp, zero):
    """Also what the software does by itself and a study does not: the same step and memory, without a warning."""
    gradients = words.get("gradient_bytes", software in {"torchtitan", "deepspeed", "megatron-core"} and 4)
    assume(not words.get("gradients_apart") or (gradients == 4 and max(zero) < 3))
    assume(not words.get("by_matrix") or zero == [3])
    assume(not words.get("overlap") or min(zero) < 3)
    with TemporaryDirectory() as folder, chdir(folder):
        Path(CONFIG).parent.mkdir()
        Path(CONFIG).write_text(json.dumps(LLAMA))
        Path("our cluster.yaml").write_text(json.dumps({"accelerator": "H100", "software": software}))
        asked = {"model": model, "seq": 1024, "accelerators": 16, "global_batch": 32, "cluster": "our cluster.yaml"}
        asked |= {"tp": [tp], "cp": [1], "micro_batch": [1], "zero": zero, "schedule": ["1f1b"], "memory": "1 TB"}
        Path("study.json").write_text(json.dumps(asked | words))
        found, _ = said("search", "study.json", "--json")
        predicted, warned = said(*shlex.split(found["predict"])[1:], "--json")
    best = found["best"][0]
    assert (predicted["step_s"], warned) == (best["step_s"], "")
    assert max(stage["peak_bytes"] for stage in predicted["memory"]) == best["memory_bytes"]


def said(*command):
    """The document that a command prints, and what it says beside."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as beside:
        assert main(command) == 0
    return json.loads(out.getvalue()), beside.getvalue()


@pytest.mark.parametrize(("cluster", "price"), [("{accelerator: H100, topology: ring8}", True), ("h100", False)])
def test_a_search_on_a_topology_says_what_that_costs(cluster, price, tmp_path, capsys):
    study = "model: gpt-1.7b\nseq: 2048\naccelerators: 8\nglobal_batch: 8\ntp: [8]\nmicro_batch: [1]\ncluster: "
    (tmp_path / "study.yaml").write_text(study + cluster)
    assert main(["search", str(tmp_path / "study.yaml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out).get("network_usd")
    main(["topology", "cost", "ring8", "--json"])
    items = json.loads(capsys.readouterr().out)["items"]
    assert found == (round(sum(item["usd"] for item in items)) if price else None)


def test_a_stage_with_much_else_to_do_has_fewer_layers():
    """A head as wide as ten layers: layers go to the others, and the step is shorter; what is best is best of all."""
    model = replace(GPT, layers=16, vocab=512000, tied=False)
    study = Study(model, Plan(8, 1024, global_batch=32), 8, SELENE, tp=[1], pp=[4], cp=[1], schedule=["1f1b"])
    best = search(replace(study, virtual_stages=[1]), 1).best[0]
    even = search(replace(study, virtual_stages=[1], cuts=["even"]), 1).best[0]
    assert sum(best.plan.cuts) == 16 and best.plan.cuts[-1] < 4
    assert best.step_s < 0.95 * even.step_s


def test_no_more_is_computed_again_than_fitting_takes():
    study = Study(GPT, Plan(2, 2048, global_batch=16), 2, SELENE, tp=[1], pp=[1], cp=[1], micro_batch=[4], zero=[0])
    sizes = {plan.recompute_layers if plan.recompute == "full" else "none": size for plan, size in sized(study).items()}
    tight = replace(study, memory_bytes=(sizes["none"] + sizes[0]) // 2)
    (partial,) = {plan.recompute_layers for plan in sized(tight)} - {0}
    some, fewer = (Plan.but(search(tight, 1).best[0].plan, recompute_layers=n) for n in (partial, partial - 1))
    assert peak(GPT, some).total <= tight.memory_bytes < peak(GPT, fewer).total
    assert search(tight, 1).best[0].plan.recompute_layers == partial < GPT.layers


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("hidden: 2048, ", ""), "'hidden' is missing"),
        (("accelerators", "acelerators"), "did you mean 'accelerators'"),
        (("H100, ", "H10O, "), "no such accelerator"),
        (("[1, 2]", "[1, two]"), ":7:18"),
        (("seq: 1024", "seq: 1024\nmemory: 1 MB"), "the smallest needs"),
        (("global_batch: 32", "global_batch: 32\nrecompute: [some]"), "selective"),
        (("global_batch: 32", "global_batch: 32\nzero: [4]"), "0, 1, 2, 3"),
        (("global_batch: 32", "global_batch: 32\nlora_modules: [linear_fc1]"), "has no effect here"),
        (
            ("global_batch: 32", "global_batch: 32\nscatter_pipeline: true"),
            "has no effect here",
        ),  # tensor ranks scatter
        (("global_batch: 32", "global_batch: 32\nfrozen: [router]"), "weights of the model: embedding"),
        (("global_batch: 32", "global_batch: 32\nfrozen: [heads]"), "output_layer"),
        (("global_batch: 32", "global_batch: 32\ncuts: [unevn]"), "did you mean 'uneven'"),
    ],
)
def test_a_wrong_study_says_where(change, message, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace(*change))
    assert main(["search", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_a_study_may_have_groups_of_layers_computed_again(tmp_path):
    """Groups need `recompute_layers`, which a study lists."""
    study = tmp_path / "study.json"
    asked = {"model": "gpt-2", "seq": 1024, "accelerators": 2, "global_batch": 4, "cluster": "selene"}
    asked |= {"recompute": ["full"], "recompute_method": "uniform"}
    study.write_text(json.dumps(asked | {"recompute_layers": [1, 3]}))
    assert {plan.recompute_layers for plan in sized(read_study(study))} == {1, 3}
    study.write_text(json.dumps(asked))
    with pytest.raises(InputError, match="has no effect here"):
        read_study(study)


def test_a_study_says_how_stages_may_be_cut(tmp_path):
    """As docs/search.md has it: words for the study, where a plan has the layers of every part."""
    path = tmp_path / "study.yaml"
    for cuts in (["even"], ["uneven"], ["even", "uneven"]):
        path.write_text(f"{STUDY}cuts: {json.dumps(cuts)}\n")
        assert [*read_study(path).cuts] == cuts


@settings(max_examples=15, deadline=None)
@given(
    model=st.sampled_from([UNEVEN, MIXTURE, replace(MIXTURE, mtp_layers=1), replace(GPT, ffn=8200)]),
    seq=st.sampled_from([1000, 1024, 1026]),
    gpus=st.sampled_from([6, 8]),
)
def test_every_candidate_is_a_plan_that_a_prediction_takes(model, seq, gpus):
    study = Study(model, Plan(gpus, seq, global_batch=24), gpus, SELENE, micro_batch=(1, 2), schedule=("1f1b",))
    for plan in sized(study):
        check(model, plan)
