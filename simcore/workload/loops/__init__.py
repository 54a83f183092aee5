"""The training loops: pure descriptions of what an NPU does in one iteration."""

from simcore.workload.loops import hybrid  # noqa: F401 - registers the loops
from simcore.workload.loops.step import Loop, Order, Ref, Span, Step, loops

__all__ = ["Loop", "Order", "Ref", "Span", "Step", "loops"]
