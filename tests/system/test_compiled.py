"""What numba compiles answers as Python does, to the nanosecond, and a run may change over while messages fly."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.network import core, heaps
from simcore.network.core import NEVER, State
from simcore.network.heaps import Heap
from simcore.system.messages import layouts
from tests.system.test_alone import SYSTEMS, TOPOLOGIES, WORKLOAD


@pytest.mark.parametrize("algorithm", SYSTEMS)
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_compiled_functions_answer_as_python_does(tmp_path, monkeypatch, name, algorithm):
    pytest.importorskip("numba", reason="nothing is compiled without numba")
    topology, dims = TOPOLOGIES[name]
    system = {key: value[:dims] for key, value in SYSTEMS[algorithm].items()}
    system |= {"endpoint-delay": 10, "active-chunks-per-dimension": 2, "preferred-dataset-splits": 3}
    for file, text in {"w.txt": WORKLOAD, "net.yml": topology, "sys.json": json.dumps(system)}.items():
        (tmp_path / file).write_text(text)
    paths = [str(tmp_path / file) for file in ("w.txt", "net.yml", "sys.json")]
    reports = []
    for enough in (10**12, 40, 0):  # never, on the way, from the beginning
        monkeypatch.setattr(layouts, "ENOUGH", dict.fromkeys((True, False), enough))
        report = simcore.run(*paths, straggler="3=1.5", no_fold=True).to_dict()
        reports.append(report)
    assert reports[0] == reports[1] == reports[2]


@pytest.mark.parametrize("algorithm", ["ring", "direct2", "doubleBinaryTree", "halvingDoubling"])
@pytest.mark.parametrize("kind", ["Ring", "Switch"])
def test_compiled_functions_answer_as_python_does_in_the_order_of_events(tmp_path, monkeypatch, kind, algorithm):
    pytest.importorskip("numba", reason="nothing is compiled without numba")
    row = "all -1 10 NONE 0 10 NONE 0 100 ALLREDUCE {} 1\n"
    (tmp_path / "w.txt").write_text("DATA\n3\n" + "".join(map(row.format, (65536, 100, 3000000))))
    (tmp_path / "net.yml").write_text(f"topology: [{kind}]\nnpus_count: [8]\nbandwidth: [50]\nlatency: [500]\n")
    system = {"endpoint-delay": 10, "active-chunks-per-dimension": 2, "preferred-dataset-splits": 3, "local-mem-bw": 50}
    (tmp_path / "sys.json").write_text(json.dumps(system | {"all-reduce-implementation": [algorithm]}))
    paths = [str(tmp_path / file) for file in ("w.txt", "net.yml", "sys.json")]
    options: dict[str, Any] = {"profile": "astra-sim-2", "network": "congested", "straggler": "3=1.5"}
    reports = []
    for enough in (10**12, 400, 0):
        monkeypatch.setattr(layouts, "ENOUGH", dict.fromkeys((True, False), enough))
        reports.append(simcore.run(*paths, **options).to_dict())
    assert reports[0] == reports[1] == reports[2]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=40), st.integers(0, 3))
def test_heaps_in_arrays_and_in_lists_give_entries_in_order_also_those_that_come_meanwhile(entries, late):
    found: list[list[tuple[int, ...]]] = [[], []]
    timers: Any = State.empty(timed=False).timers
    ways: list[Any] = [(heaps, Heap.of(timers, 4).with_room(2 * len(entries))), (core, timers)]
    for (how, heap), told in zip(ways, found, strict=True):
        for entry in entries:
            how.push(heap, entry)
        while how.first(heap) < NEVER:
            told.append(entry := tuple(map(int, how.pop_timer(heap))))
            if entry[0] == late and entry[1] < 2:
                how.push(heap, (late, entry[1] + 2, *entry[2:]))
        assert how.pop_timer(heap)[0] == NEVER
    assert found[0] == found[1]
    assert found[0] == sorted(found[0])
    assert len(found[0]) == len(entries) + sum(entry[0] == late and entry[1] < 2 for entry in entries)


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), max_size=40))
def test_heads_of_lines_come_in_order_whatever_the_order_of_a_line(entries):
    """They are pushed in lines 0 (none) to 5, and every third time one is swapped for the first."""
    lines: Any = Heap.of(State.empty(timed=False).heads, 10).with_room(len(entries) + 1, 6)
    heap: list[Any] = []
    for number, (time, order, line) in enumerate(entries):
        head = time, order, number, 0, 0, 0, 0, 0, 0
        if number % 3 == 2:
            assert heaps.swap(lines, (*head, line))[:9] == core.swap(heap, head)
        else:
            heaps.push(lines, (*head, line))
            core.push(heap, head)
    assert [tuple(heaps.pop_head(lines)[:9]) for _ in heap] == sorted(heap)
    assert heaps.first(lines) == NEVER


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.6, 0.9])
def test_what_is_compiled_is_loaded_where_enough_is_still_to_come(monkeypatch, share):
    """A hundred messages or a quarter more; where nobody knows, as many are to come as there were."""

    class LoadedError(Exception):
        pass

    def load(*_: object) -> None:
        raise LoadedError

    monkeypatch.setattr(layouts, "ENOUGH", dict.fromkeys((True, False), 100))
    monkeypatch.setattr(layouts, "installed", lambda: True)
    monkeypatch.setattr(layouts, "Arrays", load)
    running, sent = layouts.Running(layouts.Layouts(timed=False, share=lambda: share)), 0
    with pytest.raises(LoadedError):
        while sent < 10_000:
            sent += 1
            running.send(0, sent, 0, -1, 0, 0)
    to_come = sent * (1 / share - 1) if share else sent
    assert to_come > 100
    assert to_come <= 130 or sent <= 27  # of which a quarter is waited for in any case
