"""Policies that a workload cannot follow are refused."""

from unittest import mock

import pytest

import simcore
from simcore.errors import InputError
from simcore.system.chunks.scheduler import GANG_ORDERS


def test_explicit_priorities_need_a_trace(tmp_path):
    system = tmp_path / "system.yaml"
    system.write_text("scheduling-policy: EXPLICIT\n")
    with pytest.raises(InputError, match="EXPLICIT takes priorities from execution traces"):
        simcore.run("dlrm", "ring8", str(system))


def test_an_order_of_chunks_of_ones_own_is_known_to_system_files_of_its_profile(tmp_path):
    system = tmp_path / "system.yaml"
    system.write_text("intra-dimension-scheduling: largestFirst\n")
    largest_first = {"largestFirst": lambda stream: (-stream.phase.largest_bytes,)}
    with pytest.raises(InputError, match="intra-dimension-scheduling is not known"):
        simcore.run("dlrm", "torus_4x4x4", str(system))
    with mock.patch.dict(GANG_ORDERS, largest_first):
        assert simcore.run("dlrm", "torus_4x4x4", str(system)).time_ns != simcore.run("dlrm", "torus_4x4x4").time_ns
        with pytest.raises(
            InputError, match=r"profile astra-sim-1\.0 has no intra-dimension-scheduling 'largestFirst'"
        ):
            simcore.run("dlrm", "torus_4x4x4", str(system), profile="astra-sim-1.0")
