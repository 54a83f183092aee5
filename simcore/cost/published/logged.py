"""What logs say of training beside its time: power of nodes at the plug, the most memory of an accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simcore.compute.power import node_w
from simcore.cost.answer import Answer
from simcore.cost.predict import Prediction
from simcore.cost.published.rows import Held, Question, Row, Step
from simcore.cost.published.training import training


@dataclass(frozen=True, slots=True)
class Drawn(Question):
    """Watts of a node of `boards` in a training step; the "seconds" of its prediction are watts."""

    step: Step
    boards: int

    def explained(self) -> Prediction:
        """The watts of the boards, and what the rest of the node and its supplies add."""
        cluster, one = self.step.system(), self.step.chosen()
        answer = Answer(*one, cluster)
        boards_w = self.boards * (answer.power() or {}).get("board_j", 0.0) / answer.step_s
        whole_w = node_w(boards_w, self.boards * cluster.device.power_w)
        return Prediction(whole_w, {"boards": boards_w, "rest": whole_w - boards_w})


def power(document: Mapping[str, Any]) -> Iterator[Row]:
    """Rows that state what a node drew inside the timed blocks."""
    for row in document.get("rows", ()):
        read = row.get("measured", {}).get("power", {}) if isinstance(row, Mapping) else {}
        if "node_w_training_blocks" in read:
            question = Drawn(training(row), int(row["hardware"]["per_node"]))
            yield Row(f"{row['id']}-power", float(read["node_w_training_blocks"]), question)


_GIB = 1 << 30  # the logs' unit is not stated: adapters beside 69.0e9 frozen weights of 8 bits leave room for no other


def memory(key: str, document: Mapping[str, Any], *, reserved_bytes: int = 0) -> Iterator[Row]:
    """Rows that state the most memory of an accelerator under a name, with what the allocator has reserved beside."""
    for row in document.get("rows", ()):
        read = row.get("measured") if isinstance(row, Mapping) else None
        if isinstance(read, Mapping) and key in read:
            step = training(row)
            held = Held(step.chosen(), "", reserved_bytes, step.system().device.memory_bytes)
            yield Row(f"{row['id']}-memory", float(read[key]) * _GIB, held)
