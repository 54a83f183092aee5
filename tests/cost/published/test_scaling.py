"""Curves of efficiency, measured and predicted."""

import pytest

from simcore.cost.published.reading import sort_rows
from simcore.cost.published.rows import Row, Step, job
from simcore.cost.published.scaling import curves, table
from simcore.cost.published.suites import SUITES
from simcore.cost.published.validate import default_documents
from simcore.model.presets import SHIPPED


def row(ranks, seconds, source="somebody", **choices):
    step = Step((job(SHIPPED["llama-3-8b"], 8192, ranks, dp=ranks, zero=1, **choices),), "h100")
    return Row(f"{ranks}", seconds, step, source=source)


def test_efficiency_is_the_rate_of_an_accelerator_over_that_of_the_smallest_run():
    (one,) = curves([(row(8, 1.0), 1.0), (row(512, 1.25), 1.1), (row(64, 1.1), 1.0)])
    assert one.accelerators == (8, 64, 512)
    ((ranks, measured, predicted),) = one.points()
    assert ranks == 512
    assert (measured, predicted) == pytest.approx((1 / 1.25, 1 / 1.1))
    assert table([one]).markdown().endswith(f"{100 * (1 / 1.1 - 1 / 1.25):.1f} in the mean |")


def test_other_jobs_and_other_sources_lie_on_other_curves():
    alone = [(row(8, 1.0), 1.0), (row(512, 1.2, dtype="fp8"), 1.0), (row(1024, 1.2, "another"), 1.0)]
    assert curves(alone) == []


def test_mlperfs_pretraining_scales_as_predicted_within_three_points():
    some = sort_rows(default_documents(), [SUITES["mlperf_gpt3"], SUITES["mlperf_llama31_405b"]])
    steps = [(one, one.question.seconds()) for each in some for one in each.rows]
    far = [abs(predicted - measured) for curve in curves(steps) for _, measured, predicted in curve.points()]
    assert len(far) >= 10
    assert max(far) < 0.03
