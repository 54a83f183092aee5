"""Who does the runs: this process, local processes, or a Dask cluster."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import connection, get_context, parent_process
from typing import Any

from simcore.errors import InputError, SimulationError
from simcore.sweep.run import Row, Task, execute, row_of

Runner = Callable[[Sequence[Task]], Iterator[Row]]
"""Tasks -> their rows, in the order in which they are done."""


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def workers(jobs: int, scheduler: str | None) -> Iterator[Runner]:
    """What runs tasks, as long as the block lasts."""
    if scheduler:
        with _dask(scheduler) as runner:
            yield runner
    elif jobs == 1:
        yield lambda tasks: map(execute, tasks)
    else:
        yield lambda tasks: _pooled(jobs, tasks)


def _pool(jobs: int) -> ProcessPoolExecutor:
    """Processes started afresh, not forked: nothing of this process leaks into the runs, whatever the platform."""
    return ProcessPoolExecutor(jobs, get_context("spawn"), _end_with_parent)


def _pooled(jobs: int, tasks: Sequence[Task]) -> Iterator[Row]:
    """All tasks; when a worker is killed, those not done once more, one at a time: so it is seen which one kills."""
    left = []
    with _pool(jobs) as pool:
        futures = {pool.submit(execute, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                try:
                    yield future.result()
                except BrokenProcessPool:
                    left.append(futures[future])
        finally:
            for future in futures:
                future.cancel()
    while left:
        with _pool(1) as pool:
            try:
                while left:
                    yield pool.submit(execute, left[0]).result()
                    del left[0]
            except BrokenProcessPool:
                yield row_of(left.pop(0), {}, "its process was ended from outside (out of memory?)")


def _end_with_parent() -> None:
    """Let a worker end when the process that started it is gone, even by kill -9."""
    if parent := parent_process():

        def watch() -> None:
            connection.wait([parent.sentinel])
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _dask(address: str) -> Iterator[Runner]:
    """The workers of a Dask scheduler; they need simcore and the same files under the same names."""
    if find_spec("distributed") is None:
        hint = "pip install 'simcore[sweep]'"
        raise InputError.at("--scheduler", "Dask is not installed", expected="the extra 'sweep'", hint=hint)
    from distributed import Client

    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        expected = "the address of a running Dask scheduler, for example tcp://host:8786"
        raise InputError.at("--scheduler", "no scheduler answers", expected=expected, found=address) from error
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # each has a level of its own; our errors say what happened
    with client:
        yield lambda tasks: _of_cluster(client, tasks)


def _of_cluster(client: Any, tasks: Sequence[Task]) -> Iterator[Row]:
    """The rows as they come; a run whose workers died has failed, a scheduler that is gone ends the sweep."""
    from distributed import CancelledError, KilledWorker, wait

    futures = dict(zip(client.map(execute, tasks, pure=False), tasks, strict=True))
    waiting = set(futures)
    try:
        while waiting:
            done, waiting = wait(waiting, return_when="FIRST_COMPLETED")
            for future in done:
                try:
                    error = future.exception()
                    row = None if error else future.result()
                except KilledWorker as lost:  # a result that was not fetched yet, and the worker that had it
                    error, row = lost, None
                yield row or row_of(futures[future], {}, f"{type(error).__name__}: {error}")
    except (CancelledError, OSError) as error:
        raise SimulationError("the Dask scheduler is gone; what is done is kept, run again to go on") from error
