import pytest

from simcore.cost.published.suites import SUITES
from simcore.cost.published.validate import default_documents


def rows(suite):
    return [row for document in default_documents() for row in SUITES[suite].rows(document)]


def test_an_ablation_never_takes_an_optimisation_back():
    """MegaScale, table 3: every row keeps what the rows above it added."""
    jobs = [row.question.jobs[0] for row in sorted(rows("megascale_table3"), key=lambda row: row.id)]
    for name in ("overlap_pipeline", "overlap"):
        assert [getattr(job.plan, name) for job in jobs] == sorted(getattr(job.plan, name) for job in jobs)
    assert [job.model.parallel_block for job in jobs] == sorted(job.model.parallel_block for job in jobs)
    assert [job.plan.fused_attention for job in jobs] == sorted(job.plan.fused_attention for job in jobs)


def test_activations_equal_the_published_figure():
    """Korthikanti et al. 2023, figure 1, the 1T model: 131.25 and 26.5625 GiB.

    Beside that stands what section 4.3 adds for the dropout of the embedding: a byte an element and stage.
    """
    masks = 2048 * 25600 * 64 / 2**30
    found = {row.id.removeprefix("mlsys23-fig1-mem-1T-"): row.question.seconds() / 2**30 for row in rows("activations")}
    assert found["activation_GiB_baseline"] == pytest.approx(131.25 + masks, rel=1e-3)
    assert found["activation_GiB_selective_seqpar"] == pytest.approx(26.5625 + masks / 8, rel=1e-3)


@pytest.mark.parametrize("suite", ["lumos_figure7", "automodel_h100"])
def test_degrees_multiply_to_the_accelerators(suite):
    for row in rows(suite):
        for job in row.question.jobs:
            assert job.plan.micro_batches >= 1
            assert job.plan.order.stages == job.plan.pp
