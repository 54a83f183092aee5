"""What memory this process may still take: a command ends in good order before there is none; garbage collection.

Python cannot be trusted once an allocation of a few bytes has failed (SimPy's processes lose their error, the
interpreter aborts), so a thread looks ahead.
"""

from __future__ import annotations

import _thread
import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from mmap import mmap
from pathlib import Path

RESERVE_BYTES = 48 << 20
BALLAST_BYTES = 16 << 20
EVERY_S = 0.02


@dataclass(slots=True)
class Watch:
    """Whether memory came to its end, and how much this process had then; `ballast` is thrown off to say so.

    Ballast is address space that is never touched, which costs nothing until it is given back.
    """

    used_bytes: int = 0
    ballast: mmap = field(default_factory=lambda: mmap(-1, BALLAST_BYTES))

    def ended(self, error: BaseException) -> bool:
        """Whether an error is the end of memory, or stands for it.

        CPython may say that a function set no exception, and a library may stumble over an error without a traceback.
        """
        self.ballast.close()
        lost = isinstance(error, SystemError) and ("without exception" in str(error) or "without setting" in str(error))
        each: BaseException | None = error
        while each is not None and not lost:  # those during whose handling it came
            lost, each = isinstance(each, MemoryError), each.__context__
        if lost:
            self.used_bytes = self.used_bytes or _used_bytes()
        return bool(self.used_bytes)


def left_bytes() -> int | None:
    """The least that any limit leaves: of the address space, of the control group, of the machine; None = not known."""
    return min(_limits(), default=None)


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").split()
    except OSError:
        return []


def _limits() -> Iterator[int]:
    if sys.platform != "win32":
        import resource

        limit, pages = resource.getrlimit(resource.RLIMIT_AS)[0], _words("/proc/self/statm")
        if limit != resource.RLIM_INFINITY and pages:
            yield limit - int(pages[0]) * resource.getpagesize()
    most, used = _words("/sys/fs/cgroup/memory.max"), _words("/sys/fs/cgroup/memory.current")
    if most and used and most[0].isdecimal():
        cache = dict(zip(*[iter(_words("/sys/fs/cgroup/memory.stat"))] * 2, strict=False)).get("inactive_file", "0")
        yield int(most[0]) - int(used[0]) + int(cache)
    words = _words("/proc/meminfo")
    if "MemAvailable:" in words:
        yield int(words[words.index("MemAvailable:") + 1]) * 1024


def _used_bytes() -> int:
    pages = _words("/proc/self/statm")
    return int(pages[1]) * 4096 if pages else 0


def check_room(needed_bytes: int, what: str) -> None:
    """MemoryError, which says how much is needed, when that is more than there is."""
    left = left_bytes()
    if left is not None and needed_bytes > left:
        raise MemoryError(f"unable to allocate some {needed_bytes >> 20:,} MB for {what}")


@contextmanager
def watched() -> Iterator[Watch]:
    """Interrupt the main thread, as Ctrl-C does, when memory ends; the `Watch` says that it was that."""
    watch, ended = Watch(), threading.Event()

    def look() -> None:
        while not ended.wait(EVERY_S):
            left = left_bytes()
            if left is None:
                return
            if left < RESERVE_BYTES:
                watch.used_bytes = _used_bytes()
                _thread.interrupt_main()
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Without collections, which would walk many small objects again and again, of which none is garbage: up to a third
    of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()  # all objects, and with the next line to the oldest generation, which is hardly ever walked
            gc.unfreeze()
            gc.enable()
