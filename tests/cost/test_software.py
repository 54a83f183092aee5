"""What software profiles make of kernels and collectives, by name."""

import re
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.compute.accelerators import accelerator
from simcore.compute.duration import durations
from simcore.compute.kernel import Attention, Product
from simcore.compute.power import limited
from simcore.cost import systems
from simcore.cost.margins import kind_of, margin_of
from simcore.cost.predict import predict
from simcore.cost.systems import CLUSTERS, SOFTWARE, placed, software_on
from simcore.cost.words import cluster_of
from simcore.library import table
from simcore.model.plan import Plan
from simcore.model.presets import model
from simcore.model.steps import Kernel, Part
from simcore.model.timing import LOOP, duration
from simcore.system.collectives.nccl import FABRICS
from tests.shared import shared

FLASH = replace(LOOP, attention_for=2020)


@given(st.sampled_from(["A100", "V100-SXM2-32GB", "H100", "B200", "MI300X"]), st.sampled_from([1, 4]))
@settings(max_examples=10)
def test_attention_written_for_older_devices_is_slower_on_newer_ones_only(name, batch):
    device, kernel = accelerator(name), Kernel(Part.ATTENTION_CORE, Attention(batch, 32, 8, 4096, 4096, 128))
    dtype = "bf16" if "bf16" in device.peak_flops_per_s else "fp16"
    slower = duration(kernel, device, dtype, FLASH).seconds / duration(kernel, device, dtype).seconds
    assert slower == pytest.approx(1.66 if device.year > FLASH.attention_for else 1.0, abs=0.01)


@given(
    st.sampled_from([1, 2, 4]),
    st.sampled_from([4, 8, 32]),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from(["nccl", "deepep"]),
)
@settings(max_examples=12)
def test_an_exchange_beside_another_micro_batch_is_shorter_whoever_brings_the_tokens(pp, ep, zero, exchange):
    shape, plan = model("qwen3-30b-a3b"), Plan(32 * pp, 4096, pp=pp, ep=ep, zero=zero, global_batch=64)
    seen = CLUSTERS["gb200"]
    seen = replace(seen, software=replace(seen.software, exchange=exchange))
    hidden = replace(seen, software=replace(seen.software, hides_exchange=True))
    assert predict(shape, plan, hidden).step_s < predict(shape, plan, seen).step_s


@given(st.sampled_from(["GB200", "MI300X", "H100-SXM-80GB", "B200-SXM"]))
@settings(max_examples=4)
def test_stating_what_a_device_has_anyway_changes_nothing_that_is_known_of_it(name):
    """Measured reach, host and memory are the device's, whatever a site states."""
    device, stated = accelerator(name), f"{name}@{accelerator(name).power_w:g}W"
    again = accelerator(stated)
    assert (again.reach, again.narrow_slowdown, again.power_w) == (device.reach, device.narrow_slowdown, device.power_w)
    usual, other = cluster_of(name), cluster_of(stated)
    shape, plan = model("llama-3-8b"), Plan(8, 4096, global_batch=8)
    assert kind_of(shape, plan, usual).device == kind_of(shape, plan, other).device
    assert (usual.memory_bytes, usual.host, usual.fabric) == (other.memory_bytes, other.host, other.fabric)


def test_an_accelerator_alone_has_the_software_usual_for_its_maker_and_its_own_host():
    assert cluster_of("H200").software == CLUSTERS["h100"].software
    families = {name: cluster_of(name).software.family for name in ("MI300X", "TPUv5p", "Gaudi3")}
    assert families == {"MI300X": "megatron", "TPUv5p": "xla", "Gaudi3": ""}
    assert placed("GB300", "megatron-core", count=64).host == CLUSTERS["gb300"].host != cluster_of("L40S").host


def test_software_that_is_only_akin_to_a_profile_has_its_steps_and_a_wider_margin():
    """Nobody published steps of torchtune in the suites: what errors its predictions have is not known."""
    shape, plan = model("llama-3.2-3b"), Plan(64, 4096, tp=2, global_batch=96, micro_batch=3)
    device, names = accelerator("H100"), ("TorchTitan", "torchtune")
    known, akin = (replace(cluster_of("H100"), software=software_on(device, name)) for name in names)
    assert predict(shape, plan, known).step_s == predict(shape, plan, akin).step_s
    margins = [margin_of(kind_of(shape, plan, cluster)) for cluster in (known, akin)]
    assert margins[1].widened and margins[1].share > 1.5 * margins[0].share


@pytest.mark.parametrize("name", [*systems.TABLE["frameworks"], *systems.TABLE["akin"]])
def test_words_of_a_frameworks_name_stand_together_or_apart_in_any_case(name):
    found = systems.framework(name)
    assert found
    together, apart = (re.sub("[ -]", between, name) for between in ("", " "))
    assert {systems.framework(f"{one} 2.1") for one in (name, name.upper(), together, apart)} == {found}


@given(st.integers(1, 16), st.integers(1, 800), st.sampled_from((4, 8)))
def test_network_cards_are_read_however_they_are_written(cards, each, per_node):
    def across(words):
        return placed("H100", "NeMo", count=64, per_node=per_node, scale_out=words).fabric.across_bytes_per_s

    said = (f"{cards} x {each} Gb RoCE per node", f"{cards}x{each}G", f"{cards}x ConnectX-7 IB NDR {each}Gb/s",
            f"Storage: 2x IB 400Gb/s, Compute: {cards}x IB {each} Gbps", f"{cards * each} Gb/s per node",
            f"{cards * each / 1000} Tb/s per host")  # fmt: skip
    assert {across(one) for one in said} == {across(said[0])}
    assert across(f"{each} Gbps per GPU") == across(f"{per_node}x{each} Gb/s per node")
    assert across(f"{each} GbE") == across("")  # of how many nobody says


@pytest.mark.parametrize(("starts", "fabric", "gigabits"), [row[:3] for row in table(systems.__file__, "usual.txt")])
def test_no_network_carries_more_than_its_cards(starts, fabric, gigabits):
    """Not even with all ranks of a node at work; a tray of NVL72 has four of the ranks that share its cards."""
    known = FABRICS[fabric]
    ranks = 4 if starts == "GB" else known.sharing_ranks
    card = int(gigabits) * 1e9 / 8 / ranks
    assert known.across_bytes_per_s / known.sharing_ranks <= card and known.nic_bytes_per_s <= card


def test_a_launch_that_waits_takes_the_way_back_too():
    """A step of one pass after the other that nothing hides grows by as much as the launches alone take."""
    shape, plan = model("gpt-1.7b"), Plan(8, 2048, tp=8, global_batch=8, dtype="fp16")
    once, twice = CLUSTERS["jean-zay"], SOFTWARE["deepspeed"]
    waiting = replace(once, software=replace(once.software, launch_s=0.0))
    longer = predict(shape, plan, once).parts["compute"] - predict(shape, plan, waiting).parts["compute"]
    assert longer >= 2 * twice.launch_s * shape.layers * plan.micro_batches * 10  # of kernels both ways


def test_a_file_without_a_fabric_takes_the_usual_one(tmp_path):
    path = tmp_path / "site.yaml"
    for name, fabric in (("H800", "hgx-h100"), ("H20", "hgx-h100"), ("MI300X", "mi300x"), ("TPUv5p", "tpu-v5p")):
        path.write_text(f"accelerator: {name}\nsoftware: megatron-core\n")
        assert cluster_of(str(path)).fabric.name == fabric


def test_the_site_of_slower_products_says_what_its_own_products_measured():
    """SimuMax's 370 products over aiconfigurator's in long runs, both on B200; weight gradients 1.05 of a forward."""
    table = np.load(shared("data", "kernels", "simumax_b200_gemm_gradients.npz"))
    device, layouts = accelerator("B200"), table["layout_names"][table["layout"]]
    products = [Product(int(m), int(n), int(k)) for m, n, k in zip(table["m"], table["n"], table["k"], strict=True)]
    cold = [one.seconds for one in durations([(one, "bf16") for one in products], device)]
    ratios = [
        float(taken) * 1e-6 / (seconds * limited(product, seconds, device, "bf16")) / (1.05 if layout == "NT" else 1.0)
        for product, seconds, taken, layout in zip(products, cold, table["time_us"], layouts, strict=True)
        if seconds > 2e-4
    ]
    assert median(ratios) == pytest.approx(CLUSTERS["simumax-b200"].software.kernels.products, rel=0.02)


@given(st.sampled_from(sorted(SOFTWARE)), st.sampled_from(["h100", "gb200"]))
@settings(max_examples=10)
def test_software_said_beside_a_cluster_is_that_of_a_file_and_of_the_plan(name, cluster):
    """A user's words, a file of a cluster and the reader of published rows agree about what software does."""
    said = simcore.predict("llama-3-8b", cluster, 16, 4096, software=name, zero=1)
    own = replace(CLUSTERS[cluster], software=software_on(CLUSTERS[cluster].device, name))
    assert said.step_s == simcore.predict("llama-3-8b", own, 16, 4096, zero=1).step_s
    assert all(getattr(said.plan, field) == value for field, value in SOFTWARE[name].usual.items())
