from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.compute.accelerators import accelerator, names
from simcore.compute.efficiency import efficiency
from simcore.compute.kernel import Attention, MemoryPass, Product
from simcore.compute.roofline import duration_s

A100 = accelerator("A100")
SIZES = st.integers(1, 16384)


@given(m=SIZES, n=SIZES, k=SIZES)
def test_nothing_beats_the_stated_rates(m, n, k):
    one = Product(m, n, k)
    seconds = duration_s(one, A100)
    assert seconds >= one.flops / A100.peak("bf16")
    assert seconds >= one.moved_bytes(2.0) / A100.memory_bytes_per_s


@given(m=SIZES, n=SIZES, k=SIZES, factor=st.integers(2, 8))
def test_more_rows_or_a_longer_sum_never_take_less_time(m, n, k, factor):
    base = duration_s(Product(m, n, k), A100)
    assert duration_s(Product(m * factor, n, k), A100) >= base * (1 - 1e-9)
    assert duration_s(Product(m, n, k * factor), A100) >= base * (1 - 1e-9)


@given(elements=st.integers(0, 10**9))
def test_a_pass_over_memory_takes_its_bytes_and_a_launch(elements):
    one = MemoryPass(4.0 * elements)
    table = efficiency(A100.name)
    expected = 4.0 * elements / (A100.memory_bytes_per_s * table.memory) + table.kernel_s
    assert duration_s(one, A100) == pytest.approx(expected)


def test_a_product_one_tile_past_a_full_wave_pays_a_second_wave():
    full = duration_s(Product(128 * 108, 256, 4096), A100)
    spilled = duration_s(Product(128 * 109, 256, 4096), A100)
    assert spilled > 1.05 * full


@pytest.mark.parametrize("name", names())
def test_every_accelerator_times_a_layer_and_a_faster_one_is_not_slower(name):
    device = accelerator(name)
    dtype = next(one for one in ("bf16", "fp16", "fp32") if one in device.peak_flops_per_s)
    works = [Product(2048, 12288, 4096), Attention(1, 32, 32, 2048, 2048, 128), MemoryPass(2048 * 4096 * 4.0)]
    faster = replace(device, peak_flops_per_s={dtype: 2 * device.peak(dtype)}, memory_bytes_per_s=1e17)
    for work in works:
        assert 0 < duration_s(work, faster, dtype) <= duration_s(work, device, dtype)


@given(size=st.sampled_from([4096, 8192, 16384]))
def test_narrow_types_speed_large_products_up_and_leave_what_stays_wide_alone(size):
    h100 = accelerator("H100")
    one = Product(size, size, size)
    assert duration_s(one, h100, "fp8") < duration_s(one, h100, "bf16")
    assert duration_s(one, h100, "fp8", wide=True) == duration_s(one, h100, "bf16")


@given(st.integers(8, 256))
def test_heads_off_the_boundary_of_a_load_take_many_loads(size):
    """Eight 16-bit elements are loaded at once; a head of another size begins between two loads."""
    odd, even = (duration_s(Product(2048, size, 2048, 32, row=row), A100) for row in (size, size // 8 * 8))
    assert odd == even if size % 8 == 0 else odd > even


def test_fused_attention_stays_in_16_bits_where_products_are_narrower():
    """As in Transformer Engine's default recipes; quantising is counted for products only."""
    device = accelerator("H100")
    attention = Attention(1, 32, 32, 8192, 8192, 128)
    assert duration_s(attention, device, "fp8") == duration_s(attention, device, "bf16")
