"""Python's garbage collector, out of the way while many small objects are made of which none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Without collections, which would walk all objects again and again: up to a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()  # all objects, and with the next line to the oldest generation, which is hardly ever walked
            gc.unfreeze()
            gc.enable()
