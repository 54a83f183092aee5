import pytest

from simcore.cost.published.bigscience import bigscience
from simcore.cost.published.bridge import dense, mixtures
from simcore.cost.published.megatron import llama3, megatron_core
from simcore.cost.published.tables import foundry, simumax
from simcore.cost.published.validate import default_documents
from simcore.model.shape import total_parameters


def jobs(rows):
    return [job for document in default_documents() for row in rows(document) for job in row.question.jobs]


@pytest.mark.parametrize("rows", [dense, mixtures, llama3, megatron_core, simumax, foundry, bigscience])
def test_every_job_divides_and_its_schedule_exists(rows):
    found = jobs(rows)
    assert found
    for job in found:
        assert job.plan.micro_batches >= 1
        assert job.plan.order.stages == job.plan.pp


def test_the_models_have_their_published_sizes():
    """The Llama 3 Herd of Models: 8.03, 70.6 and 405.85 billion parameters; the reports of the others."""
    dense_sizes = {job.model.layers: total_parameters(job.model) / 1e9 for job in jobs(dense)}
    assert dense_sizes == pytest.approx(
        {layers: size for layers, size in _LLAMA.items() if layers in dense_sizes}, rel=2e-3
    )
    mixture_sizes = {total_parameters(job.model) / 1e9 for job in jobs(mixtures)}
    assert sorted(mixture_sizes) == pytest.approx([30.53, 235.1, 671.0, 1040.0], rel=0.02)


_LLAMA = {32: 8.03, 80: 70.55, 126: 405.85}
