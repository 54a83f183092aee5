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


def test_a_folder_hides_a_shipped_example_only_where_it_is_a_workload(tmp_path, monkeypatch):
    """What a run of an example writes often has its name."""
    monkeypatch.chdir(tmp_path)
    for name, shelf in (("ring8", "topologies"), ("dlrm", "workloads")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text("{}")
        assert library.resolve(name, shelf).parent.name == shelf
        (tmp_path / "other").mkdir(exist_ok=True)
        assert str(library.resolve("other", shelf)) == "other"
    (tmp_path / "dlrm" / "w.0.et").touch()
    assert str(library.resolve("dlrm", "workloads")) == "dlrm"
    (tmp_path / "gpt_7b" / "nodes" / "decode0" / "node_0").mkdir(parents=True)
    assert str(library.resolve("gpt_7b", "workloads")) == "gpt_7b"


def test_a_path_is_taken_as_it_is_and_a_miss_names_the_nearest(tmp_path):
    path = tmp_path / "mine.yaml"
    assert library.resolve(str(path), "topologies") == path
    with pytest.raises(InputError, match="ring64"):
        library.resolve("ring46", "topologies")
