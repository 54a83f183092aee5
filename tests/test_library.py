"""The shipped examples are found by name, and every one of them runs."""

import pytest

from simcore import library
from simcore.errors import InputError
from simcore.network.topology.load import load
from simcore.workload.text import read


@pytest.mark.parametrize("name", library.names("topologies"))
def test_every_shipped_topology_loads(name):
    assert load(name).npus > 1


@pytest.mark.parametrize("name", library.names("workloads"))
def test_every_shipped_workload_reads_without_a_warning(name):
    workload = read(library.resolve(name, "workloads"))
    assert workload.layers
    assert not workload.warnings


def test_a_path_is_taken_as_it_is_and_a_miss_names_the_nearest(tmp_path):
    path = tmp_path / "mine.yaml"
    assert library.resolve(str(path), "topologies") == path
    with pytest.raises(InputError, match="ring64"):
        library.resolve("ring46", "topologies")
