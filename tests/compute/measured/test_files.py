"""A user's own tables: what is taken, what is refused, and what one row changes."""

import pytest

from simcore.compute.accelerators import accelerator
from simcore.compute.duration import duration
from simcore.compute.kernel import Product, Source
from simcore.compute.measured.files import add_table
from simcore.compute.measured.tables import entries
from simcore.errors import InputError


@pytest.fixture
def added(tmp_path, monkeypatch):
    monkeypatch.setenv("SIMCORE_TABLES", str(tmp_path / "tables"))

    def add(text, name="mine_gb200_gemm.csv"):
        (tmp_path / name).write_text(text)
        return add_table(tmp_path / name)

    return add


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dtype,n,k,m,time_us\n", "hold no rows"),
        ("dtype,n,k,m,time_us\nbf16,4096.5,4096,4096,100\n", "a whole number from 1"),
        ("dtype,n,k,m,time_us\nbfloat16,4096,4096,4096,100\n", "did you mean 'bf16'"),
        ("dtype,n,k,m,time_us\nbf16,4096,4096,inf,100\n", "column m, row 1"),
        ("dtype,n,k,m,time_ms\nbf16,4096,4096,4096,100\n", "found:    dtype, k, m, n, time_ms"),
    ],
)
def test_what_is_no_table_is_refused_with_its_reason(added, text, said):
    with pytest.raises(InputError) as refused:
        added(text)
    assert said in str(refused.value)


def test_headings_may_be_capitals_remarks_are_left_and_another_unit_shows(added):
    assert added("dtype,M,N,K,time_us,remark\nbf16,4096,4096,4096,100,hot\n")[1] == pytest.approx(1.2, rel=0.1)
    entry, longer = added("dtype,m,n,k,time_us\nbf16,4096,4096,4096,100000\n")
    assert longer == pytest.approx(1200, rel=0.1)  # against what was known without the table that it replaces
    entry.path.unlink()
    assert not any(one.own for one in entries())


def test_one_row_of_a_device_without_tables_leaves_far_sizes_to_its_nearest_device(added):
    far, device = Product(16, 8192, 8192), accelerator("GB200")
    before = duration(far, device, "bf16")
    added("dtype,n,k,m,time_us\nbf16,4096,4096,4096,100\n")
    after = duration(far, device, "bf16")
    assert after.seconds == pytest.approx(before.seconds, rel=0.2)
    assert (after.source, after.table, after.spread) == (Source.TRANSFERRED, before.table, before.spread)
    assert duration(Product(4096, 4096, 4096), device, "bf16").seconds == pytest.approx(100e-6, rel=1e-3)
