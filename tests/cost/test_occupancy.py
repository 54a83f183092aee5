"""Memory over a step: the same peak as the closed form, from takes and gives that a caching allocator serves."""

import csv
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.cli import main
from simcore.cost.answer import remedies
from simcore.cost.occupancy import occupancy
from simcore.cost.predict import predict
from simcore.cost.systems import CLUSTERS
from simcore.cost.words import plan_of
from simcore.model.allocator import Allocator
from simcore.model.memory import activation_bytes, peak, stage_memory
from simcore.model.plan import Plan
from simcore.model.shape import Experts, LayerKind, Model

LLAMA = Model("llama", 16, 2048, 16, 5632, 32000, kv_heads=4)
H100 = CLUSTERS["h100"]
MIB = 1 << 20


@settings(max_examples=40, deadline=None)
@given(
    schedule=st.sampled_from(["1f1b", "interleaved", "gpipe"]),
    stage=st.integers(0, 3),
    count=st.sampled_from([4, 8]),
    zero=st.integers(0, 3),
    fused=st.booleans(),
    recompute=st.sampled_from(["none", "selective"]),
    offload=st.sampled_from([(), ("optimizer",)]),
)
def test_the_curve_has_the_peak_of_the_closed_form(schedule, stage, count, zero, fused, recompute, offload):
    chunks = 2 if schedule == "interleaved" else 1
    plan = Plan.of(
        2048, 2 * count, dp=2, pp=4, schedule=schedule, virtual_stages=chunks, zero=zero, recompute=recompute,
        fused_attention=fused, offload=offload,
    )  # fmt: skip
    one = occupancy(LLAMA, plan, H100, stage)
    assert one.peak_bytes == pytest.approx(stage_memory(LLAMA, plan, stage).total, abs=64)
    assert one.moments[-1].activations == 0
    assert [moment.time_s for moment in one.moments] == sorted(moment.time_s for moment in one.moments)
    assert all(now.reserved >= now.allocated >= now.activations + now.workspace for now in one.moments)


@settings(max_examples=40, deadline=None)
@given(
    module=st.sampled_from(["core_attn", "layernorm", "mlp", "mlp_act", "qkv_proj"]),
    layers=st.integers(1, 8),
    tp=st.sampled_from([1, 2]),
    loss_bytes=st.sampled_from([0, 10]),
)
def test_what_selective_recomputation_drops_of_a_layer_is_there_for_its_gradients(module, layers, tp, loss_bytes):
    """One block of a layer is whole at a time: with one layer nothing is saved."""
    kept = Plan.of(2048, 1, tp=tp, fused_attention=False, loss_bytes=loss_bytes)
    plan = replace(kept, recompute="selective", recompute_modules=(module,))
    whole, dropped = (activation_bytes(LLAMA, each, LayerKind()) for each in (kept, plan))
    back = (whole - dropped) / (2 if module == "layernorm" else 1)  # there is one in each block
    shape = replace(LLAMA, layers=layers)
    memory, played = peak(shape, plan), occupancy(shape, plan, H100)
    assert memory.workspace >= back > 0
    assert played.peak_bytes == pytest.approx(memory.total, abs=64)
    assert any(moment.workspace == pytest.approx(back, abs=64) for moment in played.moments)


@settings(max_examples=40, deadline=None)
@given(
    schedule=st.sampled_from(["interleaved", "zb-v", "dualpipe"]),
    layers=st.integers(8, 23),
    count=st.sampled_from([8, 16, 32]),
    dropout=st.booleans(),
)
def test_chunks_of_unequal_layers_never_hold_more_than_the_answer(schedule, layers, count, dropout):
    """More micro-batches are held of an earlier chunk than of a later one, and the middle ones have more layers."""
    shape = replace(LLAMA, layers=layers)
    plan = Plan.of(2048, count, pp=4, schedule=schedule, virtual_stages=2, dropout=dropout)
    needed = [stage_memory(shape, plan, stage) for stage in range(plan.pp)]
    for stage, memory in enumerate(needed):
        one = occupancy(shape, plan, H100, stage)
        assert one.peak_bytes <= memory.total + 64
        assert max(moment.activations for moment in one.moments) == pytest.approx(memory.activations, abs=64)
    assert peak(shape, plan) == max(needed, key=lambda memory: memory.total)


@settings(max_examples=40, deadline=None)
@given(group=st.integers(1, 20), pp=st.sampled_from([1, 2, 4]), schedule=st.sampled_from(["1f1b", "gpipe", "zb-v"]))
def test_layers_that_are_computed_again_as_one_are_there_at_once(group, pp, schedule):
    """Megatron-LM's --recompute-method uniform: of a group an input is kept, and all else is made for its gradients."""
    shape = replace(LLAMA, layers=16)
    chunks = 2 if schedule == "zb-v" and pp > 1 else 1
    shown = {"pp": pp, "schedule": schedule if pp > 1 else "", "virtual_stages": chunks}
    plan = Plan.of(2048, 8, recompute="full", recompute_layers=group, recompute_method="uniform", **shown)
    there = min(group, shape.layers // pp // chunks) * activation_bytes(shape, plan, LayerKind(), again=False)
    for stage in range(pp):
        memory, played = stage_memory(shape, plan, stage), occupancy(shape, plan, H100, stage)
        assert memory.workspace >= there
        assert any(moment.workspace == there for moment in played.moments)
        assert played.peak_bytes <= memory.total + 64


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.integers(0, 7)), max_size=60))
def test_blocks_are_whole_and_segments_are_used_again(wanted):
    allocator, held = Allocator(), {}
    for size, place in wanted:
        if place in held:
            allocator.give(held.pop(place))
        held[place] = allocator.take(size)
        assert held[place].size % 512 == 0 and held[place].size >= size
        assert allocator.reserved >= sum(piece.size for piece in held.values()) == allocator.allocated
    for piece in held.values():
        allocator.give(piece)
    before = allocator.reserved
    assert allocator.allocated == 0
    for size, _ in wanted[-1:]:
        allocator.take(size)
    assert allocator.reserved == before


@pytest.mark.parametrize(
    ("size", "reserved"), [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB + 1, 12), (33 * MIB, 34)]
)
def test_segments_have_the_sizes_of_pytorchs(size, reserved):
    """c10/cuda/CUDACachingAllocator.cpp: 2 MiB up to 1 MiB, 20 MiB below 10 MiB, multiples of 2 MiB above."""
    allocator = Allocator()
    allocator.take(size)
    assert allocator.reserved == reserved * MIB


SMALL = replace(LLAMA, hidden=8192, heads=64, kv_heads=8, ffn=28672, layers=20)


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(
        [
            SMALL,
            replace(SMALL, layers=40),
            replace(SMALL, experts=Experts(8, 2, 14336)),
            replace(LLAMA, experts=Experts(8, 2, 2048)),
        ]
    ),
    degrees=st.sampled_from([{"tp": 8}, {"tp": 8, "pp": 2}, {"tp": 4, "pp": 4}, {"tp": 2, "cp": 2}, {}]),
    micro_batch=st.sampled_from([1, 4]),
    batch=st.sampled_from([{"global_batch": 64}, {}]),
    fused_attention=st.booleans(),
    recompute=st.sampled_from(["none", "selective"]),
)
def test_what_would_fit_fits_when_it_is_said(model, degrees, micro_batch, batch, fused_attention, recompute):
    """Every option that is told is a prediction's, whose fullest stage has room, and takes as long as is told."""
    words = degrees | batch | {"micro_batch": micro_batch, "fused_attention": fused_attention, "recompute": recompute}
    plan = plan_of(model, H100, 16, {"seq": 4096} | words)
    told = remedies(model, plan, H100)
    assert [step_s for *_, step_s in told] == sorted(step_s for *_, step_s in told)
    for option, size, step_s in told:
        said = iter(option.removeprefix("--").replace(" --", " ").split())
        more = {name.replace("-", "_"): next(said) for name in said if name != "sequence-parallel"}
        more = {name: int(value) if value.isdecimal() else value for name, value in more.items()}
        more |= {"offload": (more["offload"],)} if "offload" in more else {}
        more |= {"sequence_parallel": True} if "sequence-parallel" in option else {}
        other = plan_of(model, H100, 16, {"seq": 4096} | words | more)
        assert peak(model, other).total == size <= H100.memory_bytes
        assert predict(model, other, H100).step_s == step_s


def test_something_would_fit_where_much_is_missing():
    assert remedies(replace(SMALL, layers=80), Plan.of(8192, 32, tp=8, pp=4, dp=2), H100)


def test_whole_layers_may_be_done_again_where_modules_are():
    plan = Plan.of(16384, 256, tp=2, pp=2, dp=4, micro_batch=2, recompute="selective", fused_attention=False)
    assert any(option.startswith("--recompute full") for option, *_ in remedies(LLAMA, plan, H100))


STEP = (
    *("predict", "--model", "llama-3-8b", "--cluster", "h100", "--accelerators", "8", "--pp", "4", "--dp", "2"),
    *("--global-batch", "8", "--seq", "2048", "--zero", "1"),
)


def test_a_plan_that_does_not_fit_names_the_option_that_says_what_would(capsys):
    words = [*STEP[:7], "--global-batch", "8", "--seq", "8192"]
    for more, named in (((), True), (("--oom",), False)):
        assert main([*words, *more]) == 0
        told = capsys.readouterr().out
        assert "does not fit" in told and ("--oom says" in told) is named


@pytest.mark.parametrize("suffix", ["png", "html", "csv", "json"])
def test_curves_are_written_as_the_suffix_says(suffix, tmp_path, capsys):
    target = tmp_path / f"memory.{suffix}"
    assert main([*STEP, "--memory", str(target), "--oom"]) == 0
    told = capsys.readouterr().out
    assert "the allocator reserves" in told and "it fits" in told
    data = target.read_bytes()
    if suffix == "csv":
        rows = list(csv.DictReader(data.decode().splitlines()))
        assert {row["stage"] for row in rows} == {"0", "1", "2", "3"}
        assert all(int(row["reserved"]) >= int(row["allocated"]) for row in rows)
    elif suffix == "json":
        counters = [event for event in json.loads(data)["traceEvents"] if event["ph"] == "C"]
        assert {"parameters", "gradients", "optimizer", "activations", "workspace"} == set(counters[0]["args"])
    else:
        assert data[:4] in {b"\x89PNG", b"<!DO"}
    assert main([*STEP, "--memory", str(target)]) == 2
    assert "--force" in capsys.readouterr().err


def test_a_picture_shows_what_a_step_consists_of(tmp_path):
    target = tmp_path / "step.svg"
    assert main([*STEP, "--plot", str(target)]) == 0
    assert b"<svg" in target.read_bytes()
