"""What numba compiles answers as Python does, to the nanosecond, and a run may change over while messages fly."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcore
from simcore.network import core, heaps
from simcore.network.core import NEVER, Calendar
from simcore.network.instant import Environment
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
        monkeypatch.setattr(layouts, "ENOUGH", dict.fromkeys((True, False), enough))
        report = simcore.run(*paths, straggler="3=1.5", no_fold=True).to_dict()
        reports.append(report)
    assert reports[0] == reports[1] == reports[2]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=40), st.integers(0, 3))
def test_calendars_and_heaps_in_arrays_give_entries_in_order_also_those_that_come_meanwhile(entries, late):
    """What comes while its time runs goes behind what that time has given, and before the rest that is larger."""
    heap, calendar = np.zeros((2 * len(entries) + 1, 4), np.int64), Calendar()
    for entry in entries:
        heaps.push(heap, entry)
        calendar.push(entry)
    assert heaps.length(heap) == len(entries) == len([*calendar])
    found: list[tuple[int, ...]] = []
    same: list[tuple[int, ...]] = []
    ways: list[Any] = [
        (heaps.push, heaps.due_timers, heaps.first_ns, heap, found),
        (Calendar.push, Calendar.due, core.first_ns, calendar, same),
    ]
    for push, due, first_ns, column, told in ways:
        while (now := first_ns(column)) < NEVER:
            for entry in due(column, now):
                told.append(tuple(map(int, entry)))
                if now == late and entry[1] < 2:
                    push(column, (now, entry[1] + 2, *entry[2:]))
    assert found == same
    assert found == sorted(found)
    assert len(found) == len(entries) + sum(entry[0] == late and entry[1] < 2 for entry in entries)


@pytest.mark.parametrize(("share", "sent"), [(0.0, 11), (0.4, 11), (0.6, 41), (1.0, 41)])
def test_what_is_compiled_is_loaded_later_where_most_of_the_run_is_over(monkeypatch, share, sent):
    """From 10 messages on, or from four times as many where less than half is to come."""

    class LoadedError(Exception):
        pass

    def load(*_: object) -> None:
        raise LoadedError

    env = Environment()
    env.share = lambda: share
    monkeypatch.setattr(layouts, "ENOUGH", dict.fromkeys((True, False), 10))
    monkeypatch.setattr(layouts, "installed", lambda: True)
    monkeypatch.setattr(layouts, "Arrays", load)
    running = layouts.Running(layouts.Layouts(timed=False), env=env)
    for number in range(sent - 1):
        running.send(0, number, 0, -1, 0, 0)
    with pytest.raises(LoadedError):
        running.send(0, sent, 0, -1, 0, 0)
