from simcore.cost.published.bigscience import _SHAPES, _job, bigscience
from simcore.cost.published.tables import table_rows
from simcore.cost.published.validate import default_documents
from simcore.cost.systems import CLUSTERS
from simcore.model.memory import peak, room


def rows():
    return [row for document in default_documents() for row in bigscience(document)]


def test_the_flops_of_a_row_tell_which_of_two_shapes_it_had():
    """chronicles-prequel.md, "NHEADs comparison": 162.72 s with 13,824 wide layers, 129.17 s with 13,312 wide ones."""
    shapes = {row.measured: row.question.jobs[0].model for row in rows() if "182B" in row.id}
    assert (shapes[162.72].layers, shapes[162.72].hidden) == (78, 13824)
    assert (shapes[129.17].layers, shapes[129.17].hidden) == (84, 13312)


def test_gradients_are_summed_in_32_bits_from_the_day_the_chronicle_says():
    clusters = {row.question.cluster for row in rows()}
    assert clusters == {"jean-zay", "jean-zay-bf16"}
    for row in rows():
        wide = row.question.cluster == "jean-zay-bf16"
        assert row.question.jobs[0].plan.gradient_bytes == (4 if wide else 2)
    assert CLUSTERS["jean-zay-bf16"].software.accumulation_bytes > CLUSTERS["jean-zay"].software.accumulation_bytes


def test_heads_that_lie_off_the_boundary_of_a_load_cost_what_was_measured():
    """Same model, batch and degrees with 96 and with 128 heads, of 144 and of 108 elements: 107.12 s and 147.41 s."""
    times = {row.measured: row.question.seconds() for row in rows()}
    assert 1.2 < times[147.41] / times[107.12] < 147.41 / 107.12 * 1.1


def test_no_job_that_ran_out_of_memory_is_said_to_fit_and_none_that_ran_not_to():
    """Rows of 181B and 184B that the chronicle marks OOM; 206B states no shape."""
    table = [row for document in default_documents() for _, row in table_rows(document, "bigscience_a100")]
    out = [row for row in table if row["Mem"] == "OOM" and row["Size"] in _SHAPES]
    assert len(out) == 3
    for row in out:
        told = room(peak(*_job(row, _SHAPES[row["Size"]][0])).total, CLUSTERS["jean-zay-bf16"].memory_bytes)
        assert "not fit" in told
    for row in rows():
        assert "does not fit" not in room(peak(*row.question.jobs[0]).total, row.question.system().memory_bytes)
