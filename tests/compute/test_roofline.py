from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.compute.accelerators import accelerator, names
from simcore.compute.efficiency import efficiency
from simcore.compute.operations import Operation, Shard, Transformer, layer_operations
from simcore.compute.roofline import duration_ns, duration_s
from simcore.workload.model import PhaseName

A100 = accelerator("A100")
SIZES = st.integers(1, 16384)


def product(m, n, k):
    return Operation("product", "gemm", 2.0 * m * n * k, 2.0 * (m * n + m * k + n * k), 1, m, n, k)


@given(m=SIZES, n=SIZES, k=SIZES)
def test_nothing_beats_the_stated_rates(m, n, k):
    one = product(m, n, k)
    seconds = duration_s(one, A100)
    assert seconds >= one.flops / A100.peak("bf16")
    assert seconds >= one.memory_bytes / A100.memory_bytes_per_s


@given(m=SIZES, n=SIZES, k=SIZES, factor=st.integers(2, 8))
def test_more_rows_or_a_longer_sum_never_take_less_time(m, n, k, factor):
    base = duration_s(product(m, n, k), A100)
    assert duration_s(product(m * factor, n, k), A100) >= base * (1 - 1e-9)
    assert duration_s(product(m, n, k * factor), A100) >= base * (1 - 1e-9)


@given(elements=st.integers(0, 10**9))
def test_a_pass_over_memory_takes_its_bytes_and_a_launch(elements):
    one = Operation("pass", "memory", 0.0, 4.0 * elements)
    table = efficiency(A100.name)
    expected = 4.0 * elements / (A100.memory_bytes_per_s * table.memory) + table.kernel_s
    assert duration_s(one, A100) == pytest.approx(expected)


def test_a_product_one_tile_past_a_full_wave_pays_a_second_wave():
    full = duration_s(product(128 * 108, 256, 4096), A100)
    spilled = duration_s(product(128 * 109, 256, 4096), A100)
    assert spilled > 1.05 * full


@pytest.mark.parametrize("name", names())
def test_every_accelerator_times_a_layer_and_a_faster_one_is_not_slower(name):
    device = accelerator(name)
    dtype = next(one for one in ("bf16", "fp16", "fp32") if one in device.peak_flops_per_s)
    model = Transformer(1, 4096, 32, 16384, 32000, 2048)
    operations = layer_operations(model, Shard(), PhaseName.FORWARD)
    faster = replace(device, peak_flops_per_s={dtype: 2 * device.peak(dtype)}, memory_bytes_per_s=1e17)
    for operation in operations:
        assert 0 < duration_ns(operation, faster, dtype) <= duration_ns(operation, device, dtype)


@given(size=st.sampled_from([4096, 8192, 16384]))
def test_narrow_types_speed_large_products_up_and_leave_what_stays_wide_alone(size):
    h100 = accelerator("H100")
    one = product(size, size, size)
    assert duration_s(one, h100, "fp8") < duration_s(one, h100, "bf16")
    assert duration_s(replace(one, wide=True), h100, "fp8") == duration_s(one, h100, "bf16")


@given(st.integers(8, 256))
def test_heads_off_the_boundary_of_a_load_take_many_loads(size):
    """Eight 16-bit elements are loaded at once; a head of another size begins between two loads."""
    model = Transformer(1, 64 * size, 64, 256 * size, 51200, 2048, attention="unfused")
    scores = next(
        one for one in layer_operations(model, Shard(4, 8), PhaseName.FORWARD) if one.name == "scores by values"
    )
    odd, even = (duration_s(replace(scores, row=row), A100) for row in (size, size // 8 * 8))
    assert odd == even if size % 8 == 0 else odd > even


@pytest.mark.parametrize("phase", [PhaseName.FORWARD, PhaseName.INPUT_GRAD])
def test_the_products_of_heads_and_no_others_know_where_heads_begin(phase):
    model = Transformer(1, 1024, 16, 4096, 51200, 2048, attention="unfused")
    rows = {one.name: one.row for one in layer_operations(model, Shard(1, 2), phase)}
    assert {name for name, row in rows.items() if row} == {"scores", "scores by values"}


def test_fused_attention_stays_in_16_bits_where_products_are_narrower():
    """As in Transformer Engine's default recipes; quantising is counted for products only."""
    device = accelerator("H100")
    model = Transformer(1, 4096, 32, 16384, 32000, 8192)
    attention = next(one for one in layer_operations(model, Shard(), PhaseName.FORWARD) if one.kind == "attention")
    assert duration_s(attention, device, "fp8") == duration_s(attention, device, "bf16")
