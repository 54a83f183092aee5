"""What is in any workload by its name: generated options, texts, specifications and sets of execution traces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from simcore import library
from simcore.errors import InputError
from simcore.files import beside
from simcore.generate.step import contents_of_step, load_step
from simcore.workload import text
from simcore.workload.chakra.groups import of_metadata, read_groups
from simcore.workload.chakra.reader import SUFFIXES, distinct_ranks, files_of_set
from simcore.workload.contents import Contents, of_graphs, of_workload

_SPECIFICATIONS = (".yaml", ".yml")
_LARGEST_RANK = 1 << 31


def read_contents(path: str) -> Contents:
    """The contents of a file, a folder of traces, the prefix of a set or a shipped workload; InputError if it is none.

    Groups of traces are read from PREFIX.groups.json where that exists, and from the traces themselves.
    """
    place = Path(path)
    if not place.is_file() and not files_of_set(place):
        place = library.resolve(path, "workloads")
        if not place.is_file():
            raise InputError.at(path, "there is no workload", expected="a text, a specification or traces", found=path)
    if place.suffix in _SPECIFICATIONS:
        return replace(contents_of_step(load_step(place)), name=place.stem)
    if place.is_file() and not place.name.endswith(SUFFIXES):
        return replace(of_workload(text.read(place)), name=place.stem)
    return _read_traces(path)


def _read_traces(path: str) -> Contents:
    place = Path(path)
    file = beside(path, "groups.json")
    groups = read_groups(file, _LARGEST_RANK) if file else {}
    traces, number_of_rank = distinct_ranks(path)
    for trace in traces:
        for stated in trace.metadata:
            groups |= of_metadata(stated, _LARGEST_RANK, trace.graph.path)
    numbers = list(number_of_rank.values())
    counted = [(numbers.count(number), trace.graph) for number, trace in enumerate(traces)]
    return of_graphs(place.name, counted, groups, len(number_of_rank))
