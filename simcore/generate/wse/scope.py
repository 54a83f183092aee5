"""What every part of the generator needs to know: the model, the system, the step and one node's place in them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property

from simcore.generate.wse.operations import Operation
from simcore.generate.wse.ranks import local_batches, own_batches
from simcore.generate.wse.shapes import Model, System

__all__ = ["Rows", "Scope", "Step"]

# Yields the operations of a part in order; returns the name of the tensor it leaves.
Rows = Generator[Operation, None, str]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `queries` new positions per sequence on top of `context` cached ones."""

    name: str
    context: int
    queries: int

    @property
    def prefill(self) -> bool:
        """Whether there is no cache yet: a prefill or a training step."""
        return self.name in {"prefill", "train"}


@dataclass(frozen=True)
class Scope:
    """One node in one step; `movement` adds the rows that only cut and join tensors."""

    model: Model
    system: System
    step: Step
    batch: int
    element_bytes: int
    node: int
    movement: bool = True

    @cached_property
    def local(self) -> range:
        """Sequences that attention works on here."""
        return local_batches(self.system, self.batch, self.node)

    @cached_property
    def own(self) -> range:
        """Sequences that this node sends to the experts."""
        return own_batches(self.system, self.batch, self.node)

    @cached_property
    def tokens(self) -> int:
        """Rows of every local activation: sequences times positions."""
        return len(self.local) * self.step.queries
