"""Clusters and models that a file describes."""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.cost.systems import RUNS, SOFTWARE
from simcore.cost.words import cluster_of, model_of, read_model, under
from simcore.documents import parse
from simcore.errors import InputError, Problems
from simcore.model.shape import Model
from simcore.system.collectives.nccl import FABRICS

SITE = """\
accelerator: H100@500W
fabric: {like: hgx-h100, cards: 4, card_gbit_per_s: 200, latency_us: 7}
software: {like: torchtitan, step_s: 0.5, kernels: {products: 1.5}}
run: production
"""


def written(tmp_path, text):
    path = tmp_path / "site.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_what_a_site_states_differs_and_all_else_is_as_what_it_is_like(tmp_path):
    found, known = cluster_of(written(tmp_path, SITE)), FABRICS["hgx-h100"]
    assert found.accelerator == "H100-SXM-80GB@500W"
    assert found.fabric.nic_bytes_per_s * 8 == pytest.approx(4 * 25e9 * 0.85)
    assert (found.fabric.hop_s, found.fabric.far_s) == (7e-6, 0.0)
    assert found.fabric.ring_bytes_per_s == known.ring_bytes_per_s
    titan = SOFTWARE["torchtitan"]
    assert (found.software.step_s, found.software.kernels.products) == (0.5, 1.5)
    assert found.software.kernels.attention == titan.kernels.attention
    assert (found.software.launch_s, found.losses) == (titan.launch_s, RUNS["production"])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("H100@500W", "H100@500V", "not understood"),
        ("like: hgx-h100", "like: hgx-h10", "did you mean 'hgx-h100'"),
        ("cards: 4", "cards: 0", "cards"),
        ("like: torchtitan", "like: torchtitanic", "no such software"),
        ("products: 1.5", "product: 1.5", "unknown key 'product'"),
        ("run: production", "run: weekend", "run is not known"),
    ],
)
def test_what_is_not_known_is_said(old, new, told, tmp_path):
    with pytest.raises(InputError, match=told):
        cluster_of(written(tmp_path, SITE.replace(old, new)))


def test_production_takes_longer_by_its_losses_and_a_benchmark_by_none():
    seconds = {
        name: simcore.predict("llama-3-8b", "h100", 16, 2048, tp=2, global_batch=16, conditions=name).step_s
        for name in ("", *RUNS)
    }
    assert seconds[""] == seconds["benchmark"]
    assert seconds["production"] == pytest.approx(seconds["benchmark"] * (1 + RUNS["production"]))
    with pytest.raises(InputError, match="no such conditions"):
        under("weekend", cluster_of("h100"))


def test_experts_are_reached_by_nccl_or_by_deepep(tmp_path):
    """DeepEP's normal kernels are faster than an all-to-all, those for low latency slower for thousands of tokens."""
    text = "accelerator: H100\nfabric: hgx-h100\nsoftware: {exchange: EXCHANGE}\n"
    waits = []
    for exchange in ("deepep", "nccl", "deepep_low_latency"):
        cluster = written(tmp_path, text.replace("EXCHANGE", exchange))
        found = simcore.predict("deepseek-v3", cluster, 64, 4096, ep=32, pp=2, global_batch=64, zero=1)
        waits.append(found.prediction.parts["expert_parallel"])
    assert 0 < waits[0] < waits[1]
    assert waits[0] < waits[2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"tp": 4}, "--tp: error: 6 is not divisible by 4, heads of keys"),
        ({"tp": 4, "kv_heads": 2, "schedule": "gpipe"}, "--schedule: error: has no effect here"),
        ({"tp": 4, "kv_heads": 8, "virtual_stages": 2}, "--virtual-stages: error: has no effect here"),
        ({"frozen": ("router",)}, "--frozen: error: has no effect here"),
    ],
)
def test_plans_that_nothing_could_run_as_they_say_are_refused(words, told):
    """Six heads of keys on four ranks: weights of two were held and products of one timed. One stage has no pipeline:
    GPipe's memory of all micro-batches was told, and the engine refused to play what was predicted.
    """
    shape = Model("own", 4, 1536, 24, 4096, 32000, kv_heads=words.get("kv_heads", 6))
    chosen = {name: value for name, value in words.items() if name != "kv_heads"}
    with pytest.raises(InputError, match=told):
        simcore.predict(shape, "h100", 4, 2048, **chosen)
    assert simcore.predict(shape, "h100", 4, 2048, tp=2).step_s > 0


@pytest.mark.parametrize("words", [{}, {"expert_tp": 2}])
def test_tensor_ranks_of_experts_share_the_tokens_unless_the_plan_says_otherwise(words):
    """As Megatron-LM wants it of either way to split experts: else all ranks would gather tokens that they have."""
    silent, said = (
        simcore.predict("mixtral-8x7b", "h100", 8, 4096, tp=2, ep=4, global_batch=8, **words, **more).step_s
        for more in ({}, {"sequence_parallel": True})
    )
    assert silent == said


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"offload": ["optimizer"]}, {"offload": ("optimizer",)}),
        ({"pp": 2, "cuts": [15, 17]}, {"pp": 2, "cuts": (15, 17)}),
        ({"tp": np.int64(8), "zero": np.int8(1), "offload_layers": None}, {"tp": 8, "zero": 1}),
        ({"tp": None, "dtype": None, "dp": None}, {}),
        ({"sequence_parallel": np.True_, "tp": 8.0}, {"sequence_parallel": True, "tp": 8}),
    ],
    ids=str,
)
def test_words_from_python_mean_what_a_plan_holds(given, meant):
    plain = simcore.predict("llama-3-8b", "h100", 8, 8192, **meant)
    found = simcore.predict("llama-3-8b", "h100", np.int32(8), np.uint16(8192), **given)
    assert (found.plan, found.step_s) == (plain.plan, plain.step_s)
    assert {type(value) for value in vars(found.plan).values()} <= {int, float, bool, str, tuple}


@pytest.mark.parametrize("given", [{"accelerators": None}, {"seq": None}, {"seq": []}, {"tp": {}}, {"offload": [[]]}])
def test_words_from_python_that_mean_nothing_are_refused(given):
    with pytest.raises(InputError, match=f"--{next(iter(given))}"):
        simcore.predict("llama-3-8b", "h100", **{"accelerators": 8, "seq": 8192, **given})


FIELDS = {"layers": 4, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": 1000}
UNFIT = {"layers": 9000, "hidden": 4, "kv_heads": 3, "vocab": 10**12, "experts": {"count": 4, "top_k": 5, "ffn": 64}}


@given(st.sets(st.sampled_from(sorted(UNFIT)), min_size=1))
def test_a_model_in_a_file_that_does_not_fit_is_told_so_at_its_fields(names):
    fields = FIELDS | {name: UNFIT[name] for name in names}
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.yaml")
        path.write_text(json.dumps(fields, indent=0))
        lines = [line.strip('"').partition('"')[0] for line in path.read_text().splitlines()]
        with pytest.raises(InputError) as caught:
            model_of(path)
    told = {lines[one.location.line - 1] for one in caught.value.problems if one.location.file == str(path)}
    assert told
    assert told <= {"top_k" if name == "experts" else name for name in names}


def test_the_model_that_the_page_on_searches_describes_is_one():
    (fields,) = re.findall(r"`(\{layers: .*?\})`", Path("docs/search.md").read_text(encoding="utf-8"))
    with Problems() as problems:
        assert read_model(parse(fields, "search.md", problems)).layers == 96
