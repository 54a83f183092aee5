"""Traces on a machine of one NPU."""

import pytest

from simcore.api import run
from simcore.workload.chakra.writer import encode, metadata, node
from simcore.workload.model import NodeKind


@pytest.mark.parametrize("profile", ["native", "astra-sim-2"])
def test_a_collective_of_one_npu_takes_no_time(tmp_path, profile):
    nodes = [
        node(0, "a", NodeKind.COMPUTE, attributes={"is_cpu_op": False, "duration_ns": 3000}),
        node(1, "b", NodeKind.COLLECTIVE, data_deps=[0], attributes={"comm_type": 0, "comm_size": 1 << 20}),
    ]
    (tmp_path / "one.0.et").write_bytes(encode(metadata(), nodes))
    place = tmp_path / "one.yaml"
    place.write_text("topology: [Ring]\nnpus_count: [1]\nbandwidth: [100]\nlatency: [100]\n")
    report = run(str(tmp_path / "one"), str(place), profile=profile).to_dict()
    assert report["time_ns"] == report["compute_ns"]
