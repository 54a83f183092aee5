import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.compute.accelerators import accelerator
from simcore.compute.kernel import Attention, MemoryPass, Product
from simcore.compute.power import WAITING, energy_j, watts
from simcore.errors import InputError

B200 = accelerator("B200")
KERNELS = [Product(4096, 4096, 4096), Attention(1, 32, 8, 4096, 4096, 128), MemoryPass(1e9)]


@given(seconds=st.lists(st.floats(0, 1), min_size=3, max_size=3), idle_s=st.floats(0, 1))
def test_a_step_takes_at_least_waiting_and_at_most_the_limit(seconds, idle_s):
    step_s = sum(seconds) + idle_s
    used = energy_j([(kernel, s, "bf16") for kernel, s in zip(KERNELS, seconds, strict=True)], step_s, B200)
    assert WAITING * 1000 * step_s * (1 - 1e-9) <= used <= 1000 * step_s * (1 + 1e-9)


def test_products_take_most_and_narrow_ones_less():
    sixteen, eight = (watts(KERNELS[0], B200, dtype) for dtype in ("bf16", "fp8"))
    assert B200.power_w > sixteen > eight > watts(KERNELS[2], B200, "bf16")


def test_a_device_without_a_stated_limit_is_refused():
    with pytest.raises(InputError, match="no power limit"):
        watts(KERNELS[0], accelerator("TPUv5p"), "bf16")
