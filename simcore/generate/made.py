"""What a generator of steps hands over: the workload's text, what `--json` prints of it, and what to warn about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simcore.workload.model import Layer, PhaseName

if TYPE_CHECKING:
    from simcore.workload.contents import Contents

Document = dict[str, object]


@dataclass(frozen=True, slots=True)
class Made:
    """A workload as text, the document that `--json` prints, what to warn about, and its times as AICB's file.

    `contents` summarises it; operation lists of AICB have none.
    """

    text: str
    document: Document
    warnings: tuple[str, ...] = ()
    profile: str = ""
    contents: Callable[[], Contents] | None = None


def row_document(layer: Layer) -> Document:
    """One row as data."""
    row: Document = {"name": layer.name, "update_ns": layer.update_ns}
    for name in PhaseName:
        phase = layer.phase(name)
        row[str(name)] = {
            "bytes": phase.size_bytes,
            "collective": None if phase.collective is None else str(phase.collective),
            "compute_ns": phase.compute_ns,
            "group": str(phase.group),
        }
    return row
