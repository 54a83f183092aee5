"""What a training loop makes of measured kernels."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.compute.accelerators import accelerator
from simcore.compute.duration import durations
from simcore.compute.kernel import Attention, GroupedProduct, MemoryPass, Product
from simcore.generate.durations import Roofline
from simcore.model.steps import Kernel, Part
from simcore.model.timing import COLD, duration

H100, A100, H200 = (accelerator(name) for name in ("H100", "A100", "H200"))
WORKS = [Product(4096, 14336, 4096), Attention(1, 32, 8, 4096, 4096, 128), MemoryPass(1e9)]


def kernel(work, **more):
    return Kernel(Part.MLP_IN, work, **more)


def kernel_s(*asked):
    return duration(*asked).seconds


@pytest.mark.parametrize("work", [*WORKS, GroupedProduct(8, 16384, 4096, 1024)], ids=lambda one: type(one).__name__)
def test_a_loop_that_adds_nothing_takes_what_was_measured(work):
    assert kernel_s(kernel(work), H100, "bf16", COLD) == durations([(work, "bf16")], H100)[0].seconds


@given(factor=st.floats(0.5, 3.0))
def test_each_factor_is_of_one_kind_of_kernel(factor):
    for name, chosen in zip(("products", "attention", "passes"), WORKS, strict=True):
        loop = replace(COLD, **{name: factor})
        for work in WORKS:
            slower = kernel_s(kernel(work), H100, "bf16", loop) / kernel_s(kernel(work), H100, "bf16", COLD)
            assert slower == pytest.approx(factor if work is chosen else 1.0)


def test_long_runs_at_the_power_limit_slow_large_products_only_and_narrow_ones_less():
    """13 % of 16-bit products and 6 % of 8-bit ones at 700 W (H200), less of long kernels, nothing at 128 rows."""

    def slower(work, dtype, device=H200):
        bound, free = (kernel_s(kernel(work), device, dtype, replace(COLD, power_limited=on)) for on in (True, False))
        return bound / free

    assert 1.10 < slower(Product(4096, 8192, 4096), "bf16") < 1.18
    assert 1.03 < slower(Product(4096, 8192, 8192), "fp8") < 1.09
    assert slower(Product(16384, 16384, 16384), "bf16") < 1.05
    assert slower(Product(128, 8192, 8192), "bf16") == slower(WORKS[1], "bf16") == slower(WORKS[2], "bf16") == 1.0
    assert slower(Product(4096, 8192, 4096), "bf16", A100) == 1.0  # its limit leaves it its clocks


def test_launches_leave_gaps_and_kernels_follow_each_other():
    loop = replace(COLD, gap_s=2e-6)
    one, three = (kernel_s(kernel(WORKS[2], launches=count), H100, "bf16", loop) for count in (1, 3))
    assert three - one == pytest.approx(4e-6)
    some = [kernel(work) for work in WORKS]
    each = [kernel_s(one, H100, "bf16", loop) for one in some]
    assert Roofline(H100, "bf16", {}, loop).seconds(some) == pytest.approx(sum(each))


def test_eight_bits_take_the_fastest_scaling_that_was_measured_and_wide_kernels_stay_in_sixteen():
    work = Product(8192, 8192, 28672)
    kinds = [durations([(work, kind)], H100)[0].seconds for kind in ("fp8", "fp8_static", "fp8_block")]
    assert kernel_s(kernel(work), H100, "fp8", COLD) == min(kinds)
    assert kernel_s(kernel(work, wide=True), H100, "fp8", COLD) == kernel_s(kernel(work), H100, "bf16", COLD)


def test_many_kernels_asked_together_take_what_each_does_alone():
    works = [Product(1000 * n, 5000, 3000) for n in range(1, 9)] + WORKS
    together = durations([(work, "bf16") for work in works], A100)
    assert [one.seconds for one in together] == pytest.approx(
        [durations([(work, "bf16")], A100)[0].seconds for work in works]
    )


def test_a_board_with_less_power_and_slower_memory_is_no_faster():
    site = accelerator("H100@500W@2.4TB/s")
    for work in WORKS:
        assert duration(kernel(work), site, "bf16").seconds > 0.97 * duration(kernel(work), H100, "bf16").seconds
    passes = kernel(WORKS[2])
    assert kernel_s(passes, site, "bf16", COLD) / kernel_s(passes, H100, "bf16", COLD) == pytest.approx(1.4, rel=0.1)
