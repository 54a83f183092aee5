"""Who does the runs: this process, local processes, or a Dask cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing import connection, get_context, parent_process

from simcore.errors import InputError, SimulationError
from simcore.sweep.run import Row, Task, execute

__all__ = ["Runner", "cores", "workers"]

Runner = Callable[[Sequence[Task]], Iterator[Row]]
"""Tasks -> their rows, in the order in which they are done."""


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def workers(jobs: int, scheduler: str | None) -> Iterator[Runner]:
    """What runs tasks, as long as the block lasts."""
    if scheduler:
        with _dask(scheduler) as runner:
            yield runner
    elif jobs == 1:
        yield lambda tasks: map(execute, tasks)
    else:
        # Started afresh, not forked: nothing of this process leaks into the runs, whatever the platform.
        with ProcessPoolExecutor(jobs, get_context("spawn"), _end_with_parent) as pool:
            yield lambda tasks: _pooled(pool, tasks)


def _pooled(pool: Executor, tasks: Sequence[Task]) -> Iterator[Row]:
    futures = [pool.submit(execute, task) for task in tasks]
    try:
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise SimulationError(
            "a worker process was ended from outside (out of memory?); run again with fewer --jobs to go on"
        ) from error
    finally:
        for future in futures:
            future.cancel()


def _end_with_parent() -> None:
    """Let a worker end when the process that started it is gone, even by kill -9."""
    parent = parent_process()
    if parent:
        threading.Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()


def _watch(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def _dask(address: str) -> Iterator[Runner]:
    """The workers of a Dask scheduler; they need simcore and the same files under the same names."""
    if find_spec("distributed") is None:
        hint = "pip install 'simcore[sweep]'"
        raise InputError.at("--scheduler", "Dask is not installed", expected="the extra 'sweep'", hint=hint)
    from distributed import Client, as_completed

    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        expected = "the address of a running Dask scheduler, for example tcp://host:8786"
        raise InputError.at("--scheduler", "no scheduler answers", expected=expected, found=address) from error
    with client:
        yield lambda tasks: (row for _, row in as_completed(client.map(execute, tasks, pure=False), with_results=True))
