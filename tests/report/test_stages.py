"""The picture of a pipelined run: stage by time."""

import pytest

import simcore
from simcore.report.artefacts import write_timeline
from simcore.report.timelines.selection import parse_selection

HEADER = "HYBRID_TRANSFORMER model_parallel_NPU_group: 1 ep: 1 pp: 2 vpp: 1 ga: 3 all_gpus: 8 pp_comm: 8\n4\n"
END = "gradient_reduce -1 0 NONE 0 0 NONE 0 0 ALLREDUCE 4096 0\n"


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text(HEADER + END + "row -1 10000 NONE 0 10000 NONE 0 10000 NONE 0 0\n" * 3)
    return lambda **options: simcore.run(str(path), "ring8", **options)


def drawn(report, path, ranks=None):
    write_timeline(report, path, parse_selection(ranks))
    return path.read_text()


@pytest.mark.parametrize(
    ("schedule", "said"),
    [("1f1b", {"forward", "backward", "bubble", "end of the step"}), ("zb-h1", {"weight gradient"})],
)
def test_it_names_what_the_stages_do(report, tmp_path, schedule, said):
    picture = drawn(report(schedule=schedule, iterations=2), tmp_path / "stages.svg")
    assert all(f"<!-- {word} -->" in picture for word in said | {f"{schedule}, 3 micro-batches", "stage"})


def test_chosen_ranks_are_shown_as_of_any_other_run(report, tmp_path):
    assert "<!-- bubble -->" not in drawn(report(), tmp_path / "ranks.svg", "0,4")


def test_the_report_has_a_row_per_stage(report):
    told = report().to_dict()
    stages = told["pipeline"]["stages"]
    assert [row["ranks"] for row in stages] == ["0-3", "4-7"]
    for row in stages:
        shares = ("compute_ns", "overlapped_ns", "exposed_comm_ns", "idle_ns")
        assert sum(row[share] for share in shares) == told["time_ns"]
