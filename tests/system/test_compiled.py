"""What numba compiles answers as Python does, to the nanosecond, and a run may change over while messages fly."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.network import heaps
from simcore.network.core import NEVER
from simcore.system import layouts
from tests.system.test_alone import SYSTEMS, TOPOLOGIES, WORKLOAD


@pytest.mark.parametrize("algorithm", SYSTEMS)
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_compiled_functions_answer_as_python_does(tmp_path, monkeypatch, name, algorithm):
    pytest.importorskip("numba", reason="the compiled core needs simcore[fast]")
    topology, dims = TOPOLOGIES[name]
    system = {key: value[:dims] for key, value in SYSTEMS[algorithm].items()}
    system |= {"endpoint-delay": 10, "active-chunks-per-dimension": 2, "preferred-dataset-splits": 3}
    for file, text in {"w.txt": WORKLOAD, "net.yml": topology, "sys.json": json.dumps(system)}.items():
        (tmp_path / file).write_text(text)
    paths = [str(tmp_path / file) for file in ("w.txt", "net.yml", "sys.json")]
    reports = []
    for enough in (10**12, 40, 0):  # never, on the way, from the beginning
        monkeypatch.setattr(layouts, "ENOUGH", enough)
        report = simcore.run(*paths, straggler="3=1.5", no_fold=True).to_dict()
        reports.append(report)
    assert reports[0] == reports[1] == reports[2]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=40))
def test_a_heap_in_an_array_gives_tuples_in_order(entries):
    heap = np.zeros((len(entries) + 1, 4), np.int64)
    for entry in entries:
        heaps.push(heap, entry)
    assert heaps.length(heap) == len(entries)
    found = []
    while heaps.first_ns(heap) < NEVER:
        found.append(tuple(map(int, heaps.pop_timer(heap))))
    assert found == sorted(entries)
