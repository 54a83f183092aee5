"""The rows of a table, answered."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simcore.compute.kernel import Source
from simcore.compute.measured.curves import Columns
from simcore.compute.measured.estimate import Question, answer, machine
from simcore.compute.measured.operations import Operation
from simcore.compute.measured.tables import words_of
from simcore.progress import meter


def predicted(
    operation: Operation, device: str, table: Columns, *, without_exact: bool = False
) -> dict[str, NDArray[np.generic]]:
    """Columns `predicted_us`, `distance` (octaves), `source` (a word of `Source`) of a table's rows, in their order."""
    rows = len(table[operation.swept])
    time_us, distance, source = np.empty(rows), np.empty(rows), np.empty(rows, "U12")
    spelt = np.array([one.value for one in Source])
    columns = [name for name in (operation.swept, *operation.sizes) if name in table]
    words = list(zip(*(words_of(table, name) for name in operation.words), strict=True))
    there = machine(device)
    for spelling in meter().over(dict.fromkeys(words)):  # rows that agree in all words are asked together
        block = np.flatnonzero([one == spelling for one in words])
        sizes = {name: table[name][block] for name in columns}
        found = answer(Question(operation, there, spelling, sizes, without_exact))
        time_us[block], distance[block], source[block] = np.exp(found.log_us), found.distance, spelt[found.source]
    return {"predicted_us": time_us, "distance": distance, "source": source}
