"""Policies that a workload cannot follow are refused."""

import pytest

import simcore
from simcore.errors import InputError


def test_explicit_priorities_need_a_trace(tmp_path):
    system = tmp_path / "system.yaml"
    system.write_text("scheduling-policy: EXPLICIT\n")
    with pytest.raises(InputError, match="EXPLICIT takes priorities from execution traces"):
        simcore.run("dlrm", "ring8", str(system))
