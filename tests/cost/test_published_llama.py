import pytest

from simcore.compute.operations import parameters
from simcore.cost.published_llama import bridge, llama3, megatron_core
from simcore.cost.validate import default_documents


def jobs(rows):
    return [job for document in default_documents() for row in rows(document) for job in row.question.jobs]


@pytest.mark.parametrize("rows", [bridge, llama3, megatron_core])
def test_every_job_divides_and_its_schedule_exists(rows):
    found = jobs(rows)
    assert found
    for job in found:
        assert job.micro_batches >= 1
        assert job.plan.stages == job.pp


def test_the_models_have_their_published_sizes():
    """The Llama 3 Herd of Models: 70.6 and 405.85 billion parameters."""
    sizes = {job.model.layers: parameters(job.model) / 1e9 for job in jobs(bridge)}
    assert sizes == pytest.approx({80: 70.55, 126: 405.85}, rel=2e-3)
