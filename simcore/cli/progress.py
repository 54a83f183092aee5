"""A sign of life on stderr for what takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["progress"]

FIRST_S, EVERY_S = 2.0, 0.5


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a spinner with the elapsed time while the block runs, on a terminal, from two seconds on."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_spin, args=(what, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _spin(what: str, over: threading.Event) -> None:
    from tqdm import tqdm

    start_s = time.monotonic()
    if over.wait(FIRST_S):
        return
    with tqdm(desc=what, bar_format="{desc} {elapsed}", file=sys.stderr, leave=False) as bar:
        bar.start_t -= time.monotonic() - start_s
        while not over.wait(EVERY_S):
            bar.refresh()
