"""Shares of time of every rank."""

import numpy as np
from hypothesis import given

from simcore.report.timelines.html import overview
from simcore.timeline.breakdown import breakdown
from tests.timelines import data_parallel, timelines


@given(timelines())
def test_shares_of_the_bins_add_up_to_the_breakdown(timeline):
    shown = overview(timeline)
    lengths = np.diff(shown.edges_ns)
    for row, npu_class in enumerate(shown.classes):
        whole = breakdown(timeline, npu_class)
        assert round((shown.compute[row] * lengths).sum()) == whole.compute_ns + whole.overlapped_ns
        assert round((shown.exposed[row] * lengths).sum()) == whole.exposed_comm_ns


def test_of_very_many_ranks_some_are_shown_the_first_and_last_among_them():
    shown = overview(data_parallel(classes=512, dims=(("Ring", 512),), iterations=1, chunks=1))
    assert len(shown.classes) == 256
    assert (shown.classes[0], shown.classes[-1]) == (0, 511)
    assert shown.compute.shape == shown.exposed.shape
