"""What the shipped tables say; figures are rows of the tables themselves (sources: simcore data list)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.compute.kernel import Source
from simcore.compute.measured import parametric
from simcore.compute.measured.estimate import Question, answer, machine, nearest_places
from simcore.compute.measured.files import add_table
from simcore.compute.measured.operations import OPERATIONS, Work
from simcore.compute.measured.tables import curves, entries, forget
from simcore.errors import InputError

SOURCES = tuple(Source)


def products(device, m, n, k, **options):
    sizes = {"m": np.array(m), "n": np.array(n), "k": np.array(k)}
    return answer(Question(OPERATIONS["gemm"], machine(device), ("bf16",), sizes, **options))


def test_a_measured_product_is_looked_up():
    found = products("h100", [8192], [8192], [8192])
    assert SOURCES[found.source[0]] is Source.MEASURED
    assert found.distance[0] == 0
    assert found.seconds[0] == pytest.approx(1.521e-3, rel=0.01)


@pytest.mark.parametrize("entry", [one for one in entries() if one.device == "h100"], ids=lambda one: one.name)
def test_without_exact_no_row_is_looked_up_and_most_come_near(entry):
    operation = OPERATIONS[entry.operation]
    there = curves(entry, tuple(None for _ in operation.words))
    middle = (there.first[:-1] + there.first[1:]) // 2
    sizes = {**there.sizes, operation.swept: 2.0 ** there.along[middle]}
    words = (entry.types[0], *(None for _ in operation.words[1:]))
    there = curves(entry, words) or there
    found = answer(Question(operation, machine("h100"), words, sizes, without_exact=True))
    assert (found.distance > 0).all()
    assert np.isfinite(found.log_us).all()


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(6)))
def test_the_order_of_rows_and_their_company_change_nothing(order):
    m, n, k = [1, 77, 512, 3000, 9000, 30000], [640, 4096, 5000, 8192, 100, 3072], [4096, 512, 5000, 8192, 9999, 3072]
    together = products("b200", m, n, k)
    mixed = products("b200", *([column[place] for place in order] for column in (m, n, k)))
    assert (together.log_us[list(order)] == mixed.log_us).all()
    alone = products("b200", [m[2]], [n[2]], [k[2]])
    assert alone.log_us[0] == pytest.approx(together.log_us[2], abs=1e-9)


def test_a_device_without_a_table_is_transferred_and_faster_in_proportion():
    """GB200's 16-bit peak is 1.11 times B200's; H800 has H100's."""
    found = products("gb200", [8192], [8192], [8192])
    assert SOURCES[found.source[0]] is Source.TRANSFERRED
    assert 1.0 < products("b200", [8192], [8192], [8192]).seconds[0] / found.seconds[0] < 1.3
    alike = products("h800", [8192], [8192], [8192]).seconds[0] / products("h100", [8192], [8192], [8192]).seconds[0]
    assert alike == pytest.approx(1.0, abs=0.05)


def test_kernels_are_those_of_the_same_chip_and_launches_those_of_the_same_host():
    """GB200 has B200's chip and GB300's host."""
    found = products("gb200", [8192], [8192], [8192])
    assert found.table[0] == "aic_b200_gemm"
    sizes = {"ranks": np.array([4]), "size_bytes": np.array([4096])}
    launches = [
        answer(Question(OPERATIONS["custom_all_reduce"], machine(device), ("bf16", "vllm", "eager"), sizes)).seconds[0]
        for device in ("gb200", "gb300", "b200")
    ]
    assert launches[0] == pytest.approx(launches[1], rel=0.25)
    assert launches[0] > 1.5 * launches[2]


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("device", ["b200", "b300", "gb300"])
def test_large_products_of_a_device_whose_tables_are_hidden_are_met_within_a_tenth(device, dtype, monkeypatch):
    """B300 and GB300 state 2.8 and 3 times the 4-bit rate of 8 bits, and reach no more than others' 2 times."""
    n, k = np.meshgrid([4096, 8192, 16384], [4096, 8192])
    sizes = {"m": np.full(n.size, 8192), "n": n.ravel(), "k": k.ravel()}
    question = Question(OPERATIONS["gemm"], machine(device), (dtype,), sizes)
    measured = answer(question)
    rest = tuple(one for one in entries() if one.device != device)
    monkeypatch.setattr("simcore.compute.measured.estimate.entries", lambda: rest)
    forget()
    moved = answer(question)
    forget()
    assert {SOURCES[place] for place in moved.source} == {Source.TRANSFERRED}
    assert abs(np.mean(moved.log_us - measured.log_us)) < 1 / 10


def test_an_operation_no_table_has_for_the_type_falls_back_to_the_stated_rates():
    sizes = {"m": np.array([4096]), "n": np.array([4096]), "k": np.array([4096])}
    found = answer(Question(OPERATIONS["gemm"], machine("h100"), ("tf32",), sizes))
    assert SOURCES[found.source[0]] is Source.ROOFLINE
    assert found.seconds[0] >= 2 * 4096**3 / 494.5e12


def test_a_device_that_does_not_exist_is_named():
    with pytest.raises(InputError, match="no such accelerator"):
        machine("h1000")


def test_sustained_runs_are_slower_where_the_power_limit_binds_and_not_at_few_rows():
    """Reference: 13 % (16-bit, large), nothing at m <= 128 (the tables' own sustained runs of H200 and B200)."""
    for device in ("h200", "b200"):
        n, k = [4096, 7168, 8192, 5120], [4096, 8192, 7168, 5120]
        for rows, low, high in (([2048, 4096, 4096, 3072], 1.05, 1.22), ([16, 32, 64, 64], 0.85, 1.06)):
            short = products(device, rows, n, k)
            sizes = {"m": np.array(rows), "n": np.array(n), "k": np.array(k)}
            long = answer(Question(OPERATIONS["gemm_sustained"], machine(device), ("bf16", None), sizes))
            assert low < np.exp(np.mean(long.log_us - short.log_us)) < high


def test_one_row_that_is_ten_times_off_moves_no_neighbour_far(tmp_path, monkeypatch):
    """A table of 25 products at 80 % of the peak; one of them is broken."""
    asked = Question(OPERATIONS["gemm"], machine("b200"), ("int8",), {"m": [4096.0], "n": [4096], "k": [5000]})
    found = []
    for broken in (1.0, 10.0):
        monkeypatch.setenv("SIMCORE_TABLES", str(tmp_path / str(broken)))
        rows = ["dtype,n,k,m,time_us"]
        for n in (2048, 3072, 4096, 6144, 8192):
            for k in (2048, 3072, 4096, 6144, 8192):
                slower = broken if (n, k) == (4096, 4096) else 1.0
                rows.append(f"int8,{n},{k},4096,{2 * n * k * 4096 / 3.6e15 * 1e6 * slower}")
        file = tmp_path / "mine_b200_gemm.csv"
        file.write_text("\n".join(rows))
        add_table(file)
        found.append(answer(asked).seconds[0])
    assert found[0] == pytest.approx(2 * 4096 * 4096 * 5000 / 3.6e15, rel=0.05)
    assert found[1] == pytest.approx(found[0], rel=0.1)


@pytest.mark.parametrize("device", ["a100", "l40s", "rtx_pro_6000"])
def test_where_tiles_go_in_waves_a_row_past_a_full_wave_costs_and_on_persistent_kernels_it_does_not(device):
    """128 columns of tiles: one more row of tiles than cores begins another wave."""

    def computed(name, rows):
        sizes = {"m": np.array(rows, float), "n": np.full(len(rows), 256.0), "k": np.full(len(rows), 8192.0)}
        work = OPERATIONS["gemm"].work(sizes, 2.0)
        return parametric.log_us(OPERATIONS["gemm"], work, sizes, machine(name).accelerator, "bf16")

    full = 128 * machine(device).accelerator.cores
    steps = np.diff(computed(device, [full - 128, full, full + 1]))
    assert abs(steps[0]) < 0.01 < 0.05 < steps[1]
    assert np.diff(computed("h100", [full, full + 1]))[0] < 1e-3


@pytest.mark.parametrize(
    ("device", "operation", "faster"), [("l40s", "mla_bmm", 2.3), ("l40s", "gemm_fp32", 1), ("h200", "mla_bmm", 1)]
)
def test_what_stays_in_a_cache_that_is_faster_than_the_memory_takes_less(device, operation, faster):
    """A part in a thousand below and above the cache's size; 142 cores of 14 GB/s over 864."""
    kind, chip = OPERATIONS[operation], machine(device).accelerator

    def computed(size_bytes):
        work = Work(memory_bytes=np.array([size_bytes]))
        return np.exp(parametric.log_us(kind, work, {"m": np.ones(1), "n": np.ones(1)}, chip, "fp32"))

    below, above = computed(0.999 * chip.cache_bytes), computed(1.001 * chip.cache_bytes)
    fixed_us = computed(0.0)
    assert (above - fixed_us) / (below - fixed_us) == pytest.approx(faster, rel=0.01)


def test_a_user_s_rows_correct_what_is_near_and_the_nearest_measurement_is_named(tmp_path, monkeypatch):
    usual = products("h100", [4096, 4096, 64], [4096, 4608, 28672], [4096, 4096, 512]).seconds
    monkeypatch.setenv("SIMCORE_TABLES", str(tmp_path / "tables"))
    file = tmp_path / "mine_h100_gemm.csv"
    file.write_text(f"dtype,n,k,m,time_us\nbf16,4096,4096,4096,{usual[0] * 1.3e6}")
    add_table(file)
    found = products("h100", [4096, 4096, 64], [4096, 4608, 28672], [4096, 4096, 512])
    slower = found.seconds / usual
    assert slower[0] == pytest.approx(1.3, rel=1e-3)
    assert 1.1 < slower[1] < 1.3
    assert slower[2] < slower[1]
    assert (found.table[0], found.table[2]) == ("mine_h100_gemm", "aic_h100_gemm")
    assert found.distance[2] < 1


def test_another_wiring_of_the_same_devices_is_no_near_device():
    operation = OPERATIONS["nccl"]
    sizes = {"ranks": np.array([8]), "size_bytes": np.array([1 << 26])}
    question = Question(operation, machine("h100"), ("fp16", "all_gather"), sizes)
    near = replace(question, device=machine("h200"))
    assert answer(question).seconds[0] == pytest.approx(answer(near).seconds[0], rel=0.1)


def test_which_configurations_are_nearest_does_not_hang_on_a_machine_s_last_digits():
    """Grids have many at one distance; sums in another order differ by some 1e-16."""
    generator = np.random.default_rng(1)
    apart = np.sqrt(generator.integers(1, 4, (50, 400)).astype(float))
    found = nearest_places(apart, 16)
    assert (found == nearest_places(apart * (1 + generator.uniform(-1e-14, 1e-14, apart.shape)), 16)).all()
    assert (np.take_along_axis(apart, found, 1) == 1).all()
    assert (found[0] == np.flatnonzero(apart[0] == 1)[:16]).all()


@settings(max_examples=30, deadline=None)
@given(
    device=st.sampled_from(("h100", "h200", "b200", "b300", "gb300")),
    kv_heads=st.sampled_from((1, 2, 4, 8)),
    shared_by=st.sampled_from((4, 5, 8)),
    context=st.sampled_from((4096, 16384, 65536)),
)
def test_twice_as_many_sequences_take_twice_as_long_to_read_beyond_the_tables_too(device, kv_heads, shared_by, context):
    batch = 2 ** np.arange(16)
    batch = batch[(batch * kv_heads * context >= 2**21) & (batch * kv_heads * context <= 2**25)]  # 1 GiB and more
    shape = {"heads": kv_heads * shared_by, "kv_heads": kv_heads, "head_dim": 128, "window": 0, "context": context}
    sizes = {"batch": batch, **{name: np.full(len(batch), size) for name, size in shape.items()}}
    longer = np.diff(answer(Question(OPERATIONS["attention_decode"], machine(device), ("bf16",), sizes)).log_us)
    assert (np.abs(longer / np.log(2) - 1) < 0.25).all()
