"""Many wrong files for every reader, each read in this process and held to its limits of time and memory.

``python -m tests.laws.campaign`` reads 100,000 files with every reader; ``--only trace --inputs 1000000 --seed 7``
others of some. The same seed makes the same files. A reader gives an answer or an `InputError` that can be printed and
names the file; anything else is a finding, which is made smaller and shown. Exit status 1 when there is one.
"""

import argparse
import gc
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click

from simcore.errors import InputError
from tests.laws.mutations import Seed
from tests.laws.readers import Reader, readers

LIMIT_S = 10.0  # of processor time for a file of a few hundred bytes
SILENCE_S = 120.0  # after which a process that reads on without Python is ended
MEMORY_BYTES = 3 << 29
SHOWN = 5
FORK = multiprocessing.get_context("fork")


class LateError(BaseException):
    """A file takes too long; no reader can catch this by mistake."""


@dataclass
class Tally:
    """What came of the files of a reader: how many, in which time, and number -> what was wrong."""

    name: str
    tried: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        rate = self.tried / max(self.seconds, 1e-9)
        share = self.refused / max(self.tried, 1)
        return (
            f"{self.name:16} {self.tried:8,} files {rate:7,.0f}/s {share:5.0%} refused {len(self.findings):3} findings"
        )


def changed(reader: Reader, seed: Seed, number: int, first: int) -> bytes:
    """The content of file `number` of a reader, in the campaign of seed `first`."""
    chance = random.Random(zlib.crc32(reader.file.encode()) << 64 | first << 40 | number)  # noqa: S311 - repeatable
    return seed.changed(chance)


def wrong(reader: Reader, path: Path, data: bytes) -> tuple[bool, str]:
    """Whether a file is refused, and what is wrong with how it is read; '' where nothing is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, data)
    os.close(descriptor)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        reader.read(path)
    except InputError as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return True, unclear(error, path)
    except click.ClickException:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return True, ""
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is shown
        signal.setitimer(signal.ITIMER_PROF, 0)
        return False, "".join(traceback.format_exception(error, limit=-4))
    signal.setitimer(signal.ITIMER_PROF, 0)
    return False, ""


def unclear(error: InputError, path: Path) -> str:
    """What is wrong with an error: it must be printable, and say what is wrong in which file."""
    try:
        shown = str(error).encode().decode()
    except UnicodeError:
        return f"an error that cannot be printed: {error!r}"
    if path.stem.partition(".")[0] not in shown and "--" not in shown:
        return f"an error that does not name the file: {shown}"
    if not error.problems or any(not problem.message for problem in error.problems):
        return f"an error without a message: {error!r}"
    return ""


def late(*_: object) -> None:
    """The clock of a file has run out."""
    raise LateError(f"no answer after {LIMIT_S} s of processor time")


def limited() -> None:
    """Put this process under its limits; a warning of Python or NumPy is an error, and nothing is printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGPROF, late)
    if sys.platform == "linux":  # others do not bound the address space
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
    warnings.simplefilter("error")
    gc.freeze()  # what the parent made is none of ours: to look through it would copy it


def last_line(finding: str) -> str:
    """What two findings of one fault have in common."""
    return next(reversed(finding.strip().splitlines()), "")[:60]


def smaller(reader: Reader, path: Path, data: bytes, finding: str) -> bytes:
    """The content without all that is not needed for the same finding."""
    wanted, step, end = last_line(finding), len(data) // 2, time.monotonic() + 10
    while step and wanted and "LateError" not in wanted:
        at = 0
        while at < len(data) and time.monotonic() < end:
            shorter = data[:at] + data[at + step :]
            same = last_line(wrong(reader, path, reader.pack(shorter))[1]) == wanted
            data, at = (shorter, at) if same else (data, at + step)
        step //= 2
    return data


def work(reader: Reader, folder: Path, options: argparse.Namespace, results: Connection, current: Any) -> None:
    """Read a reader's files; sends a Tally. `current` tells others which one is being read."""
    limited()
    path, seed = folder / reader.file, Seed(reader.content, binary=reader.binary)
    tally, begin, known = Tally(reader.file), time.process_time(), set()
    for number in range(options.inputs):
        current.value = number
        data = changed(reader, seed, number, options.seed)
        refused, finding = wrong(reader, path, reader.pack(data))
        tally.tried, tally.refused = tally.tried + 1, tally.refused + refused
        if finding and last_line(finding) not in known:
            known.add(last_line(finding))
            tally.findings[number] = f"{finding.strip()}\n{smaller(reader, path, data, finding)!r:.600}"
        if len(known) == SHOWN or (not number % 64 and time.process_time() - begin > options.seconds):
            break
    tally.seconds = time.process_time() - begin
    results.send(tally)


class Running:
    """A process that reads one reader's files in a folder of its own."""

    def __init__(self, reader: Reader, folder: Path, options: argparse.Namespace):
        self.reader, self.current, self.since, self.seen = reader, FORK.Value("q", -1, lock=False), 0.0, -2
        self.folder = Path(shutil.copytree(folder, folder.with_name(f"of {reader.file}")))
        self.results, other = FORK.Pipe(duplex=False)
        self.process = FORK.Process(target=work, args=(reader, self.folder, options, other, self.current))
        self.process.start()
        other.close()

    def ended(self) -> Tally | None:
        """What came of it, None while it goes on; one that is silent for long is ended."""
        if self.seen != self.current.value:
            self.seen, self.since = self.current.value, time.monotonic()
        elif time.monotonic() - self.since > SILENCE_S and not self.results.poll():
            self.process.kill()
        if not self.results.poll() and self.process.is_alive():
            return None
        try:
            tally: Tally = self.results.recv()
        except EOFError:
            self.process.join()
            tally = Tally(self.reader.file, self.seen + 1)
            tally.findings[self.seen] = f"the process ended by itself or was ended: {self.process.exitcode}"
        self.process.join()
        shutil.rmtree(self.folder)
        return tally


def campaign(folder: Path, options: argparse.Namespace) -> Iterator[Tally]:
    """The tallies of all readers as they end, several at a time."""
    left = [each for each in readers(folder).values() if not options.only or options.only in each.file]
    running: list[Running] = []
    while left or running:
        while left and len(running) < options.jobs:
            running.append(Running(left.pop(0), folder, options))
        time.sleep(0.02)
        for one in [*running]:
            if tally := one.ended():
                running.remove(one)
                yield tally


def run(arguments: list[str] | None = None) -> int:
    """Command line: a line for every reader, and its findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws.campaign", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="files of a reader")
    parser.add_argument("--seconds", type=float, default=600, help="most of a reader")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="readers at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="readers with this in the name of their file")
    options, findings = parser.parse_args(arguments), 0
    memory = Path("/dev/shm")  # noqa: S108 - files of a moment, in a folder of our own
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        folder = Path(made) / "files"
        folder.mkdir()
        for tally in campaign(folder, options):
            print(tally, flush=True)
            findings += len(tally.findings)
            for number, finding in tally.findings.items():
                print(f"--- {tally.name}, file {number} of seed {options.seed}\n{finding}\n", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(run())
