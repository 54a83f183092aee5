import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.compute.accelerators import accelerator
from simcore.compute.duration import collective_curve, duration, expert_exchange
from simcore.compute.kernel import Attention, Gradient, GroupedProduct, MemoryPass, Product, Source, Touch

DEVICES = [accelerator(name) for name in ("A100", "H100", "B200", "GB200", "MI300X", "TPUv5p")]
KERNELS = [
    Product(4096, 14336, 4096),
    Product(2048, 2048, 128, batch=64),
    GroupedProduct(8, 16384, 14336, 4096),
    GroupedProduct(8, 16384, 14336, 4096, Gradient.WEIGHT),
    Attention(1, 32, 8, 4096, 4096, 128),
    Attention(1, 32, 8, 4096, 4096, 128, backward=True),
    Attention(2, 16, 16, 4096, 4096, 192, 128),
    *(MemoryPass(1e8, touch) for touch in Touch),
]


@pytest.mark.parametrize("device", DEVICES, ids=lambda one: one.name)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda one: type(one).__name__)
def test_no_kernel_beats_the_stated_rates_and_none_is_ten_times_off_them(kernel, device):
    found = duration(kernel, device, "bf16")
    least = max(kernel.flops / device.peak("bf16"), kernel.moved_bytes(2.0) / device.memory_bytes_per_s)
    assert 0.9 * least < found.seconds < 10 * least
    assert found.spread >= 0
    assert found.distance >= 0
    assert found.table


def test_a_measured_product_says_so_and_a_gradient_of_its_sizes_does_not():
    """1.521 ms: aiconfigurator, H100, the median of its software versions."""
    forward = duration(Product(8192, 8192, 8192), DEVICES[1], "bf16")
    weight = duration(Product(8192, 8192, 8192, gradient=Gradient.WEIGHT), DEVICES[1], "bf16")
    assert (forward.source, forward.table) == (Source.MEASURED, "aic_h100_gemm")
    assert forward.seconds == pytest.approx(1.521e-3, rel=0.01)
    assert weight.source is Source.INTERPOLATED
    assert weight.seconds == pytest.approx(1.05 * forward.seconds)


@pytest.mark.parametrize(("gradient", "seconds"), [(Gradient.NONE, 1.869e-3), (Gradient.INPUT, 1.968e-3)])
def test_grouped_products_are_measured_by_the_sizes_of_their_layer_in_every_pass(gradient, seconds):
    """SimuMax's B200: 32 experts of 1,024 tokens each, from 7,168 features to 4,096; each row was measured twice."""
    n, k = (7168, 4096) if gradient is Gradient.INPUT else (4096, 7168)
    found = duration(GroupedProduct(32, 32 * 1024, n, k, gradient), DEVICES[2], "bf16")
    weight = duration(GroupedProduct(32, 32 * 1024, 4096, 7168, Gradient.WEIGHT), DEVICES[2], "bf16")
    assert (found.source, found.distance) == (weight.source, weight.distance) == (Source.MEASURED, 0)
    assert found.seconds == pytest.approx(seconds, rel=0.01)
    assert 2.465e-3 < weight.seconds < 2.961e-3


def test_the_backward_of_attention_takes_three_times_its_forward_where_work_fills_the_device():
    """SimuMax, A100 PCIe and B200: 2.9 to 3.6 for enough work, less where the forward does not fill the device."""
    for device in DEVICES[:3]:
        shape = (1, 64, 64, 4096, 4096, 128)
        ratio = duration(Attention(*shape, backward=True), device, "bf16").seconds / (
            duration(Attention(*shape), device, "bf16").seconds
        )
        assert 2.2 < ratio < 3.7


@settings(max_examples=30, deadline=None)
@given(m=st.integers(256, 30000), n=st.integers(256, 30000), k=st.integers(256, 30000))
def test_twice_the_rows_take_longer_and_at_most_a_bit_more_than_twice(m, n, k):
    one, two = (duration(Product(rows, n, k), DEVICES[1], "bf16").seconds for rows in (m, 2 * m))
    assert 0.9 < two / one < 2.6


SHARED = st.sampled_from((1, 4, 8))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(DEVICES), st.sampled_from((128, 512, 1024, 4096)), st.integers(2, 64), SHARED, SHARED)
def test_decoding_in_a_window_takes_as_long_as_over_a_cache_of_its_size(device, window, longer, batch, shared):
    """What lies before the window is not read."""
    heads = batch, 8 * shared, 8, 1
    inside, full = Attention(*heads, longer * window, 128, window=window), Attention(*heads, window, 128)
    assert 0.3 < duration(inside, device, "bf16").seconds / duration(full, device, "bf16").seconds < 2


def test_rows_off_the_load_boundary_read_element_by_element():
    even, odd = (duration(Product(2048, 2048, 104, batch=32, row=row), DEVICES[0], "bf16") for row in (104, 108))
    assert odd.seconds == pytest.approx(8 * even.seconds)


def test_the_same_question_has_the_same_answer():
    assert duration(KERNELS[0], DEVICES[3], "fp8") == duration(KERNELS[0], DEVICES[3], "fp8")


def test_experts_further_away_take_longer_to_reach_and_more_multiprocessors_help():
    """DeepEP on H100: two nodes are at their network's limit, one is not (aiconfigurator's tables)."""
    shape = {"tokens": 4096, "hidden": 7168, "top_k": 8, "experts": 256}
    near = expert_exchange("dispatch", DEVICES[1], ranks=8, **shape)
    far = expert_exchange("dispatch", DEVICES[1], ranks=16, nodes=2, **shape)
    few = expert_exchange("dispatch", DEVICES[1], ranks=8, sms=4, **shape)
    assert near.seconds < few.seconds
    assert 1.5 * near.seconds < far.seconds < 3 * near.seconds
    assert near.table == "aic_h100_expert_exchange"


def test_collectives_of_a_node_are_those_of_nccl_tests():
    """All-reduce on 8 H100, fp16: 15.5 us at 512 bytes, 1,106 us at 256 MiB (aiconfigurator)."""
    sizes, seconds = collective_curve("all_reduce", 8, DEVICES[1])
    small, large = (float(seconds[sizes == size][0]) for size in (512, 1 << 28))
    assert small == pytest.approx(15.5e-6, rel=0.02)
    assert large == pytest.approx(1106e-6, rel=0.02)
