from dataclasses import replace

import pytest

from simcore.cost.published.suites import SUITES
from simcore.cost.published.validate import default_documents
from simcore.cost.systems import placed
from simcore.model.memory import peak, room
from simcore.model.shape import total_parameters

BRIDGE = "megatron_bridge_llama", "megatron_bridge_moe"
OTHERS = "llama3_405b", "megatron_core_h100", "simumax_b200", "llm_foundry_mpt", "bigscience"


def jobs(suite):
    return [
        job for document in default_documents() for row in SUITES[suite].rows(document) for job in row.question.jobs
    ]


@pytest.mark.parametrize("suite", [*BRIDGE, *OTHERS])
def test_every_job_divides_and_its_schedule_exists(suite):
    found = jobs(suite)
    assert found
    for job in found:
        assert job.plan.micro_batches >= 1
        assert job.plan.order.stages == job.plan.pp


def test_the_models_have_their_published_sizes():
    """The Llama 3 Herd of Models: 8.03, 70.6 and 405.85 billion parameters; the reports of the others."""
    dense_sizes = {job.model.layers: total_parameters(job.model) / 1e9 for job in jobs(BRIDGE[0])}
    assert dense_sizes == pytest.approx(
        {layers: size for layers, size in _LLAMA.items() if layers in dense_sizes}, rel=2e-3
    )
    mixture_sizes = {total_parameters(job.model) / 1e9 for job in jobs(BRIDGE[1])}
    assert sorted(mixture_sizes) == pytest.approx([30.53, 235.1, 671.0, 1040.0], rel=0.02)


_LLAMA = {32: 8.03, 80: 70.55, 126: 405.85}


@pytest.mark.parametrize(("micro", "seq", "said"), [(3, 8192, "does not fit"), (1, 4096, ""), (1, 2048, "")])
def test_llama_3_8b_on_four_v6e_fits_where_its_recipe_says(micro, seq, said):
    """tpu-recipes, Llama3.1-8B on v6e-8, troubleshooting: out of memory as configured; with these two it ran."""
    rows = (row for document in default_documents() for row in SUITES["frameworks_xla_google"].rows(document))
    ((shape, plan),) = next(row.question.jobs for row in rows if row.id == "recipe-v6e-llama31-8b-8")
    fewer = replace(plan, world_size=4, global_batch=4 * micro, micro_batch=micro, seq=seq)
    told = room(peak(shape, fewer).total, placed("TPUv6e", "maxtext", count=4).memory_bytes)
    assert said in told
    assert bool(told) == bool(said)
