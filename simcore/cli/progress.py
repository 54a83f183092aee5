"""How far a command is, on stderr, for what takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from simcore.cli.command import is_quiet
from simcore.progress import Meter, metered

__all__ = ["progress", "told"]

FIRST_S, EVERY_S, EVERY_LINE_S = 2.0, 0.5, 10.0
LEAST_SHARE = 0.01  # from which the rest is guessed
CLEAR = "\r\x1b[K"


@contextmanager
def progress(what: str) -> Iterator[Meter]:
    """Show percentage and time left while the block runs: on a terminal, with -v as lines elsewhere, never with -q."""
    lines = not sys.stderr.isatty()
    with metered() as meter:
        if is_quiet() or (lines and not click.get_current_context().meta.get("simcore.verbose")):
            yield meter
            return
        over = threading.Event()
        thread = threading.Thread(target=_show, args=(what, meter, over, lines), daemon=True)
        thread.start()
        try:
            yield meter
        finally:
            over.set()
            thread.join()


def told(what: str, share: float, elapsed_s: float) -> str:
    """One line of it.

    >>> told("simulating", 0.25, 30.0), told("reading", 0.0, 3.0)
    ('simulating: 25 %, 0:30, about 1:30 left', 'reading: 0:03')
    """
    if share < LEAST_SHARE:
        return f"{what}: {_clock(elapsed_s)}"
    left_s = elapsed_s * (1 - min(share, 1.0)) / share
    return f"{what}: {min(share, 1.0):.0%}, {_clock(elapsed_s)}, about {_clock(left_s)} left".replace("%", " %")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _show(what: str, meter: Meter, over: threading.Event, lines: bool) -> None:
    start_s = time.monotonic()
    if over.wait(FIRST_S):
        return
    begin, end = ("", "\n") if lines else (CLEAR, "")
    while True:
        sys.stderr.write(f"{begin}{told(what, meter.tell(), time.monotonic() - start_s)}{end}")
        sys.stderr.flush()
        if over.wait(EVERY_LINE_S if lines else EVERY_S):
            break
    sys.stderr.write("" if lines else CLEAR)
    sys.stderr.flush()
