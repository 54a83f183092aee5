"""Loads of experts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.errors import InputError
from simcore.generate.build import busiest_load, expert_shares


@given(kind=st.sampled_from(["identical", "uniform", "zipf", "zipf:1.5"]), ranks=st.sampled_from([1, 2, 4, 8]))
def test_the_busiest_rank_has_at_least_the_mean(kind, ranks):
    shares = expert_shares(kind, 16, 4096)
    assert shares.sum() == pytest.approx(1)
    assert busiest_load(shares, ranks) >= 1 - 1e-9
    assert busiest_load(shares, 1) == pytest.approx(1)


def test_the_same_seed_draws_the_same_routing():
    assert np.array_equal(expert_shares("uniform", 8, 1000, 3), expert_shares("uniform", 8, 1000, 3))
    assert not np.array_equal(expert_shares("uniform", 8, 1000, 3), expert_shares("uniform", 8, 1000, 4))


def test_counts_come_from_a_file(tmp_path):
    path = tmp_path / "counts.txt"
    path.write_text("6 2\n0 0\n")
    assert busiest_load(expert_shares(str(path), 4, 1), 2) == 2.0
    with pytest.raises(InputError, match="--moe_imbalance"):
        expert_shares(str(path), 8, 1)
    with pytest.raises(InputError, match="zipf:EXPONENT"):
        expert_shares("zip", 8, 1)
