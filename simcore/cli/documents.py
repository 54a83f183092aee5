"""The types of what commands print with --json; `simcore schema` publishes them.

The engine's report is typed where it is made, comparisons and contents of workloads are the dataclasses that they are
made of; every other document is a row of `documents.txt`. A key ends in its unit.
"""

from __future__ import annotations

from types import GenericAlias
from typing import Any

import msgspec

from simcore.cli.command import emit
from simcore.cost.closed.scaling import Model, Spread
from simcore.cost.sensitivity import Sensitivity
from simcore.library import table
from simcore.network.topology.cost import Item
from simcore.replay.views.changed import Help
from simcore.replay.views.compare import TraceComparison
from simcore.replay.views.job import Job
from simcore.replay.views.report import Utilisation
from simcore.report.compare import ReportComparison
from simcore.report.document import BreakdownRow, ReportDocument, encode
from simcore.report.jobs import JobsComparison, JobsDocument
from simcore.report.workload_compare import WorkloadComparison
from simcore.workload.contents import Contents

MADE = (ReportDocument, BreakdownRow, JobsDocument, Item, Contents, Model, Spread, Sensitivity, Utilisation, Help, Job)
COMPARED = (ReportComparison, JobsComparison, WorkloadComparison, TraceComparison)
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (str, int, float, bool, *MADE, *COMPARED)}
KINDS |= {"interval": tuple[float, float], "pair": tuple[int, int], "any": Any}
"""Name -> type, of what keys have and documents are."""


def _kind(name: str) -> Any:
    """The type of a name, as `documents.txt` writes it."""
    inner, ending = name[:-2], name[-2:]
    if ending == "[]":
        return GenericAlias(list, (_kind(inner),))
    if ending == "{}":
        return GenericAlias(dict, (str, _kind(inner)))
    return _kind(inner) | None if ending == "|-" else KINDS[name]


def _keys(said: str) -> dict[str, Any]:
    return {key: _kind(kind) for key, _, kind in (word.partition(":") for word in said.split())}


DOCUMENTS: dict[str, Any] = {}
"""Name -> type of the document."""
for _name, _title, *_said in table(__file__, "documents.txt"):
    if _said:
        _must, *_may = map(_keys, _said)
        _optional = [(key, kind | msgspec.UnsetType, msgspec.UNSET) for keys in _may for key, kind in keys.items()]
        KINDS[_title] = msgspec.defstruct(_title, [*_must.items(), *_optional], kw_only=True)
    if _name != "-":
        DOCUMENTS[_name] = _kind(_title)


def schema(name: str | None) -> None:
    """Print the JSON Schema of a document; without a name what there is."""
    if name is None:
        emit({"documents": list(DOCUMENTS)}, "\n".join(DOCUMENTS))
        return
    document = msgspec.json.schema(DOCUMENTS[name])
    emit(document, lambda: encode(document))
