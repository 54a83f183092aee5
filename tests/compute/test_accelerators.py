import pytest

from simcore.compute.accelerators import ELEMENT_BYTES, accelerator, names
from simcore.errors import InputError


@pytest.mark.parametrize("name", names())
def test_every_preset_states_rates_memory_and_where_the_figures_come_from(name):
    device = accelerator(name)
    assert device.source
    assert set(device.peak_flops_per_s) <= set(ELEMENT_BYTES)
    assert min(device.peak_flops_per_s.values()) > 1e12
    assert min(device.memory_bytes, device.memory_bytes_per_s, device.cores) > 0


@pytest.mark.parametrize("name", names())
def test_narrower_numbers_are_never_slower(name):
    peak = accelerator(name).peak_flops_per_s
    widths = sorted(peak, key=lambda dtype: (-ELEMENT_BYTES[dtype], peak[dtype]))
    assert [peak[dtype] for dtype in widths] == sorted(peak[dtype] for dtype in widths)


def test_short_names_in_any_case_mean_the_usual_device():
    assert accelerator("h100") is accelerator("H100-SXM-80GB")
    assert accelerator("a100_40gb").name == "A100-SXM-40GB"


def test_an_unknown_name_or_data_type_names_the_nearest():
    with pytest.raises(InputError, match="H100"):
        accelerator("H10O")
    with pytest.raises(InputError, match="fp16"):
        accelerator("V100").peak("bf16")
