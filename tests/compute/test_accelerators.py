import pytest

from simcore.compute.accelerators import ELEMENT_BYTES, accelerator, names, recognised
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
    """But whole ones, whose units Blackwell Ultra gave up."""
    peak = {dtype: rate for dtype, rate in accelerator(name).peak_flops_per_s.items() if dtype != "int8"}
    widths = sorted(peak, key=lambda dtype: (-ELEMENT_BYTES[dtype], peak[dtype]))
    assert [peak[dtype] for dtype in widths] == sorted(peak[dtype] for dtype in widths)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("h100", "H100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("H100 NVL", "H100-NVL"),
        ("a100_40gb", "A100-SXM-40GB"),
        ("A100-PCIe", "A100-PCIe-80GB"),
        ("GB200 NVL72", "GB200"),
        ("AMD Instinct MI355X 288GB HBM3e", "MI355X"),
        ("TPU v5p-128", "TPUv5p"),
        ("TPU v5litepod-256", "TPUv5e"),
        ("Intel Gaudi 2", "Gaudi2"),
        ("NVIDIA A6000", "RTX-A6000"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA GH200 120GB", "GH200"),
        ("Tesla V100-PCIE-32GB", "V100-PCIe-32GB"),
        ("Huawei Ascend 910B3", "Ascend-910B"),
        ("trn1n.32xlarge", "Trainium1"),
        ("AMD Instinct MI250X (GCD)", "MI250X-GCD"),
        ("MI250 GCDs", "MI250-GCD"),
        *((name, name) for name in names()),
    ],
)
def test_a_name_means_a_device_as_publications_write_it(said, name):
    assert accelerator(said) is accelerator(name)
    assert accelerator(name).name == name


@pytest.mark.parametrize("part", ["{}/2", "1/2 {}", "half of {}", "one tile of {}", "{} MIG 3g.40gb", "{} (2 dies)"])
@pytest.mark.parametrize("name", ["MI250X", "A100-SXM4-80GB", "Max 1550", "Ascend 910C"])
def test_a_part_of_an_accelerator_is_not_taken_for_all_of_it(name, part):
    assert recognised(name)
    assert recognised(part.format(name)) is None
    with pytest.raises(InputError, match="a part of an accelerator"):
        accelerator(part.format(name))


def test_an_unknown_name_or_data_type_names_the_nearest():
    with pytest.raises(InputError, match="H100"):
        accelerator("H10O")
    with pytest.raises(InputError, match="A100-SXM-80GB"):
        accelerator("A100 64GB")
    with pytest.raises(InputError, match="fp16"):
        accelerator("V100").peak("bf16")
