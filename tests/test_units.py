"""Quantities: what is written is what is read, and no bound is beaten by rounding."""

from decimal import Decimal
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.units import format_bytes, format_ns, parse_bytes, parse_bytes_per_s, parse_ns, transfer_ns


@given(st.integers(0, 10**8), st.sampled_from([1, 8, 125, 1000]))
def test_a_transfer_takes_the_exact_time_rounded_up(size_bytes, bytes_per_us):
    assert transfer_ns(size_bytes, bytes_per_us * 1e6) == ceil(Fraction(size_bytes * 1000, bytes_per_us))


@given(st.integers(0, 10**9), st.integers(0, 10**6))
def test_more_bytes_never_take_less_time(size_bytes, more):
    assert transfer_ns(size_bytes, 25e9) <= transfer_ns(size_bytes + more, 25e9)


@pytest.mark.parametrize(
    ("text", "value"), [("1 us", 1000.0), ("2ms", 2e6), ("1.5 s", 1.5e9), ("7", 7.0), (3, 3.0), ("250 ps", 0.25)]
)
def test_times_are_nanoseconds(text, value):
    assert parse_ns(text) == value


@pytest.mark.parametrize(("text", "value"), [("1 KiB", 1024), ("2 GB", 2 * 10**9), ("0.5 KiB", 512), (9, 9)])
def test_sizes_are_bytes(text, value):
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("400 Gb/s", 50e9), ("400 Gbps", 50e9), ("1 GiB/s", 2.0**30), ("3 MB/s", 3e6), (50, 50e9)]
)
def test_rates_are_bytes_per_second(text, value):
    assert parse_bytes_per_s(text) == value


def test_a_bare_rate_is_in_the_gigabyte_asked_for():
    assert parse_bytes_per_s(1, gigabyte=2.0**30) == 2.0**30


@pytest.mark.parametrize("text", ["", "fast", "1 GB", "1 parsec", "nan", "inf", "1e999", "--1 us", "1e308 h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="expected a time"):
        parse_ns(text)


def test_half_bytes_and_truth_values_are_refused():
    with pytest.raises(ValueError, match="whole number of bytes"):
        parse_bytes("0.3 B")
    with pytest.raises(TypeError):
        parse_ns(True)


@given(st.integers(0, 10**18))
def test_printed_times_read_back_to_four_digits(time_ns):
    assert abs(parse_ns(format_ns(time_ns).replace(",", "")) - time_ns) <= time_ns * 1e-3
    assert abs(parse_bytes(format_bytes(time_ns).replace(",", "")) - time_ns) <= time_ns * 1e-3


@given(st.integers(0, 10**12), st.sampled_from([("kB", 3), ("MB", 6), ("GB", 9)]))
def test_a_whole_number_of_bytes_may_be_written_with_a_fraction(size_bytes, unit):
    name, digits = unit
    assert parse_bytes(f"{Decimal(size_bytes).scaleb(-digits):f} {name}") == size_bytes
