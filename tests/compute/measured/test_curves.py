import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.compute.measured.kriging import Kriging
from simcore.compute.measured.operations import OPERATIONS
from simcore.compute.measured.tables import LEVELS, Entry, curves, pack
from tools.pack_measurements import selected, thinned

GEMM = OPERATIONS["gemm"]
SIZES = st.integers(1, 1 << 15)
ROWS = st.lists(st.tuples(SIZES, SIZES, SIZES, st.floats(1.0, 1e6)), min_size=1, max_size=40, unique_by=lambda r: r[:3])


def columns(rows):
    m, n, k, time_us = (np.array(column) for column in zip(*rows, strict=True))
    words = {"dtype": np.zeros(len(m), int), "dtype_names": np.array(["bf16"])}
    return {"m": m, "n": n, "k": k, "time_us": time_us, **words}


def loaded(packed, folder):
    np.savez(folder / "own_h100_gemm.npz", **packed)
    return curves(Entry("own_h100_gemm", "h100", "gemm", ("bf16",), 1, "here", "ours", folder), ("bf16",))


@settings(deadline=None)
@given(rows=ROWS)
def test_a_packed_table_gives_every_measured_time_back(rows, tmp_path_factory):
    found = loaded(pack(GEMM, columns(rows)), tmp_path_factory.mktemp("tables"))
    places = {(n, k): place for place, (n, k) in enumerate(zip(*(found.sizes[c] for c in "nk"), strict=True))}
    for m, n, k, time_us in rows:
        left, right, share = found.between(np.array([places[n, k]]), np.array([np.log2(m)]))
        at = (1 - share) * found.log_us[left] + share * found.log_us[right]
        assert abs(at[0] - np.log(time_us)) <= np.log(2) / LEVELS


@settings(deadline=None)
@given(rows=ROWS, share=st.floats(0.001, 0.5))
def test_points_left_out_are_met_by_lines_between_those_kept(rows, share):
    whole = pack(GEMM, columns(rows))
    kept = thinned(GEMM, whole, share)
    short = selected(whole, GEMM, kept)
    assert short["points"].sum() == kept.sum() == len(short["level"])
    curve = np.repeat(np.arange(len(whole["points"])), whole["points"])
    for one in range(len(whole["points"])):
        mine = curve == one
        along, level = np.log2(whole["m"][mine].astype(float)), whole["level"][mine].astype(float)
        line = np.interp(along, along[kept[mine]], level[kept[mine]])
        assert np.abs(line - level).max() * np.log(2) / LEVELS <= share + 1e-9


def said(kriging, offsets, votes, idle=None):
    """What votes say and the variance that is left, of one question."""
    places = np.array([offsets], float)
    idle = np.zeros(places.shape[:2]) if idle is None else np.array([idle])
    found, left = kriging.says(places, idle, np.array([votes]), np.zeros(places.shape[:2], bool))
    return found[0], left[0]


@given(
    offsets=st.lists(st.tuples(st.floats(-4, 4), st.floats(-4, 4)), min_size=2, max_size=12, unique=True),
    level=st.floats(-5, 5),
)
def test_where_all_neighbours_agree_kriging_says_the_same(offsets, level):
    found, left = said(Kriging(), offsets, [level] * len(offsets))
    assert abs(found - level) <= 0.02 * abs(level) + 1e-9
    assert left >= 0


@given(near=st.floats(0.0, 0.5), far=st.floats(2.0, 8.0))
def test_a_nearer_point_counts_more(near, far):
    found, _ = said(Kriging(slope=0.0, noises=(0.02,)), [[near], [-far]], [1.0, 0.0])
    assert found > 0.5


@given(far=st.floats(0.5, 8.0))
def test_of_two_as_far_the_one_with_a_size_in_common_counts_more(far):
    offsets = [[far, 0.0, 0.0], [-far / 2**0.5, far / 2**0.5, 0.0]]
    assert said(Kriging(noises=(0.02,)), offsets, [0.0, 1.0])[0] < 0.5


@given(far=st.floats(0.5, 8.0), idle=st.floats(0.1, 2.0))
def test_of_two_as_far_the_one_with_as_many_idle_cores_counts_more(far, idle):
    assert said(Kriging(noises=(0.02,)), [[far], [-far]], [1.0, 0.0], [0.0, idle])[0] > 0.5


@given(jump=st.floats(0.5, 3.0), place=st.integers(0, 31))
def test_one_vote_far_off_a_trend_moves_no_answer_far(jump, place):
    offsets = [[x, 0.0] for x in np.linspace(-2, 2, 32)]
    votes = np.where(np.arange(32) == place, jump, 0.0)
    assert abs(said(Kriging(), offsets, votes)[0]) < 0.1


def test_votes_say_how_noisy_they_are():
    """A trend is followed to its end; of noise the mean is taken."""
    offsets = [[x, 0.0] for x in np.linspace(0.1, 3, 32)]
    trend, noise = np.array(offsets)[:, 0] * 0.1, np.tile([0.1, -0.1], 16)
    assert abs(said(Kriging(), offsets, trend)[0]) < 0.02
    assert abs(said(Kriging(), offsets, noise)[0]) < 0.03
