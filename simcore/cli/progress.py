"""How far a command is, on stderr, for what takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from simcore.progress import Meter, metered

FIRST_S, EVERY_S, EVERY_LINE_S = 2.0, 0.5, 10.0
LEAST_SHARE = 0.01  # from which the rest is guessed
CLEAR = "\r\x1b[K"

Aside = Callable[[], AbstractContextManager[None]]
"""Inside it the line of the progress is away, so that something else can be printed."""


@contextmanager
def progress(what: str, *, lines: bool) -> Iterator[Aside]:
    """Show percentage and time left while the block runs: one that changes on a terminal, or `lines`."""
    over, lock = threading.Event(), threading.Lock()

    @contextmanager
    def aside() -> Iterator[None]:
        with lock:
            if not lines:
                sys.stderr.write(CLEAR)
                sys.stderr.flush()
            yield

    with metered() as meter:
        thread = threading.Thread(target=_show, args=(what, meter, over, lock, lines), daemon=True)
        thread.start()
        try:
            yield aside
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


def _show(what: str, meter: Meter, over: threading.Event, lock: threading.Lock, lines: bool) -> None:
    start_s, wait_s, clear = time.monotonic(), FIRST_S, ""
    begin, end = ("", "\n") if lines else (CLEAR, "")
    while not over.wait(wait_s):
        with lock:
            line = told(what, meter.tell(), time.monotonic() - start_s)
            sys.stderr.write(f"{begin}{line}{meter.hint and '; ' + meter.hint}{end}")
            sys.stderr.flush()
        wait_s, clear = (EVERY_LINE_S, "") if lines else (EVERY_S, CLEAR)
    sys.stderr.write(clear)
    sys.stderr.flush()
