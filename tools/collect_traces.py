"""Collect what simcore replays and converts from a PyTorch training loop: the host's execution trace and Kineto's.

Copy this file beside the training script; nothing of simcore is needed there. On every rank:

    with collect("traces", rank, wait=5) as step:
        for batch in loader:
            train(batch)
            step()

Then, where simcore is: `simcore replay traces` plays the step; `simcore convert traces/host.0.json chakra/step --kineto
traces/kineto.0.json --rank 0` links both into a Chakra trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["collect"]


@contextmanager
def collect(folder: str, rank: int, *, wait: int = 5, warmup: int = 2, active: int = 3) -> Iterator[Callable[[], None]]:
    """Profile `active` steps after `wait` and `warmup` ones; yields what is to be called at the end of every step.

    Writes FOLDER/kineto.RANK.json (all active steps, with shapes, for `simcore replay`) and FOLDER/host.RANK.json (the
    operators of the same steps with their tensors; record-function ids join the two).
    """
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    observer = ExecutionTraceObserver()
    observer.register_callback(str(target / f"host.{rank}.json"))
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1),
        on_trace_ready=lambda made: made.export_chrome_trace(str(target / f"kineto.{rank}.json")),
        record_shapes=True,
        execution_trace_observer=observer,
    ) as profiler:
        yield profiler.step
    observer.unregister_callback()
