"""What replays can do with a host execution trace that they cannot without."""

import json

import numpy as np
import pytest

from simcore.cli import main
from simcore.errors import InputError
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.steps.rank import RankView
from simcore.replay.views.workloads import to_chakra, to_workload_text
from simcore.replay.whatif.products import width_factors
from simcore.workload.host_trace import read_recorded
from simcore.workload.kineto_reader import read_ranks
from tests.profiles_of_steps import recorded
from tests.shared import recording, shared


def public(name):
    return str(shared("data", "traces", "param", name))


def test_widths_of_a_profile_without_shapes_change_by_the_host_traces():
    """PARAM's linear: layers of 1024 x 1024 floats, which fill a V100 better at twice the width."""
    (plain,) = recording("param", "linear_kineto.json.gz")
    with pytest.raises(InputError, match="no matrix product says its shape"):
        width_factors(RankView(plain), "hidden", 2048)
    (trace,), _ = read_recorded([public("linear_kineto.json.gz")], [public("linear_et.json.gz")])
    factors = width_factors(RankView(trace), "hidden", 2048)
    gemm = np.array(["gemm" in name for name in trace.names])[trace.tasks.name]
    assert np.median(factors[~gemm]) == 1.0
    assert np.median(factors[gemm]) == pytest.approx(2.8, rel=0.15)
    assert (factors[gemm] > 1).mean() > 0.95  # the first of 40 iterations is not whole, and the last layer is narrow


def test_a_network_times_the_collectives_whose_sizes_the_host_traces_tell():
    """DLRM on 8 V100: its eight collectives a rank go from recorded times to 192 B .. 1.6 MB among all ranks."""
    traces, _ = read_recorded([public("dlrm_kineto.tar.gz")], [public("dlrm_pytorch_et.tar.gz")])
    plain, sized = (replay_traces(one, Changes()) for one in (read_ranks([public("dlrm_kineto.tar.gz")]), traces))
    assert [(e.collectives, e.kept) for e in map(to_chakra, (plain, sized))] == [(0, 64), (64, 0)]
    assert [s.predicted_ns for (s,) in plain.steps] == [s.predicted_ns for (s,) in sized.steps]
    text = to_workload_text(sized)
    assert (text.count("ALLTOALL"), text.count("ALLREDUCE")) == (5, 3)


def test_the_report_says_what_was_joined(capsys):
    files = [public("linear_kineto.json.gz"), "--host", public("linear_et.json.gz")]
    assert main(["replay", *files, "--no-residual", "--json"]) == 0
    (rank,) = json.loads(capsys.readouterr().out)["ranks"]
    counts = {key: value for key, value in rank["host_trace"].items() if key != "file"}
    expected = {"matched_by": "names in order", "operations": 926, "found": 926, "operators": 36114, "stretches": 39}
    assert counts == expected | {"products": 39 * 62, "collectives": 0, "unsized": 0}
    assert rank["layers"] == {"alike": 20, "count": 20, "kernels": 398, "name": ""}


def test_a_folders_host_traces_join_their_process_and_others_are_said_to_be_left_out(capsys, tmp_path):
    (tmp_path / "kineto.json").write_bytes(recorded([("work", 20), ("launch", "gemm", 50)], 2).content())
    said = {"name": "aten::op", "ctrl_deps": 1, "inputs": {}, "outputs": {}, "id": 3}
    attributes = [{"name": "rf_id", "type": "uint64", "value": 1}]
    for process in (1, 2):
        document = {"schema": "1.1.0-chakra.0.0.4", "pid": process, "nodes": [said | {"attrs": attributes}]}
        (tmp_path / f"et{process}.json").write_text(json.dumps(document))
    assert main(["replay", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert output.err.endswith("et2.json: no trace here is of process 2; this host trace is left out\n")
    assert "host trace: 1 of 1 operations found by names in order, an iteration that repeats 2 times" in output.out
