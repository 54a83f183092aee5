"""Many wrong files for every reader, as fast as the commands answer.

``python -m tests.laws.campaign --seconds 60`` shares a minute among all readers; ``--only trace.json --seed 7`` tries
others of one. The same seed tries the same files. A failure prints the reader, the number of the file and its content.
"""

import argparse
import contextlib
import io
import json
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from simcore.cli import main
from tests.laws.inputs import inputs

LIMIT_S = 20
KEYS = {"file", "line", "column", "field", "expected", "found", "hint"}
TOKEN = re.compile(rb'"[^"\n]*"|-?[\w.+/]+|[\[\]{}:,]')
VALUES = (
    *("", "0", "-1", "1", "2", "3", "0.5", "7", "9", "64", "1e5", "1e30", "1e-12", "1e308", "1e400", "nan", ".nan"),
    *("inf", "-.inf", "9" * 30, "9" * 400, str((1 << 63) - 1), str(1 << 32), "true", "null", "~", "NONE", '""', "[]"),
    *("{}", "[1, 2]", "{a: 1}", "é", "\ufeff", "\0", "..", "!!python/object:os.system x", "&a [*a, *a]", "*a", "0x10"),
    *("1_000", "1:30", "2001-01-01", "-", "?", "%", '"\\ud800"', "<<", "100 GB/s", "-5 us", "x" * 5000, "[" * 3000),
)
BYTES = (b"\0", b"\xff", b"\xef\xbb\xbf", b"\r\n", b"\t", b"\xe2\x80\xa8", b'"', b"{", b"]", b"#", b"\x1b[31m", b"-")
BYTES = (*BYTES, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
CHANGES = ("value", "value", "value", "cut", "bytes", "leave out", "repeat", "swap")
STEP_LIMITS = re.compile(
    rb"iterations: \d{4,}|queues_per_dim: \d{4,}|npus_count: [^\n]*\b(1e5|0x|\d{5})|splits\"?: (1e5|\d{5})"
)


def changed(content: bytes, chance: random.Random) -> bytes:
    """The content with one to three things replaced, cut off, put in, left out or repeated."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        content = changed_once(content, chance)
    return content


def changed_once(content: bytes, chance: random.Random) -> bytes:
    """The content with one thing changed."""
    how, tokens = chance.choice(CHANGES), list(TOKEN.finditer(content))
    if how == "value" and tokens:
        token = chance.choice(tokens)
        return content[: token.start()] + chance.choice(VALUES).encode() + content[token.end() :]
    if how == "swap" and tokens:
        one, two = chance.choice(tokens), chance.choice(tokens)
        return content[: one.start()] + two[0] + content[one.end() :]
    if how in {"leave out", "repeat"} and content:
        lines = content.splitlines(keepends=True)
        at = chance.randrange(len(lines))
        lines[at : at + 1] = [] if how == "leave out" else [lines[at]] * 2
        return b"".join(lines)
    at = chance.randint(0, len(content))
    return content[:at] + (b"" if how == "cut" else chance.choice(BYTES) + content[at:])


def called(command):
    """(exit status, stdout, stderr) of a command; one that takes too long is a failure."""
    out, error = io.StringIO(), io.StringIO()

    def late(*_):
        raise AssertionError(f"no answer after {LIMIT_S} s of processor time")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = main(command)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return status, out.getvalue(), error.getvalue()


def not_a_number(name):
    raise AssertionError(f"{name} in JSON")


def check(command):
    """An answer without NaN, or an error that says so, in both forms."""
    status, out, error = called(command)
    assert status in {0, 1, 2, 3}, error
    assert status in {0, 3} or "error:" in error, error
    if "--json" in command:
        document = json.loads(out, parse_constant=not_a_number)
        assert status in {0, 3} or all(set(problem) >= KEYS for problem in document["error"]), out
    return status, error


def attempt(right, folder, numbers, *, seed=0, seconds=float("inf")):
    """Try wrong files of one reader until `numbers` or time end: how many; AssertionError with the first failure."""
    path, done, end = folder / right.file, 0, time.monotonic() + seconds
    command = right.command.format(path, folder).split()
    try:
        for number in numbers:
            content = changed(right.content, random.Random(f"{seed} {right.file} {number}"))  # noqa: S311 - repeatable
            if STEP_LIMITS.search(content):  # what is asked for is done, however long it takes
                continue
            path.write_bytes(content)
            try:
                check(command)
            except Exception as error:
                raise AssertionError(f"{right.file}, file {number} of seed {seed}: {content!r}") from error
            done += 1
            if time.monotonic() > end:
                break
    finally:
        path.write_bytes(right.content)
    return done


def run(arguments=None):
    """Command line: how many files of every reader were tried; the exit status is 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of all readers together")
    parser.add_argument("--inputs", type=int, default=100_000, help="most files of a reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="readers with this in their name")
    options = parser.parse_args(arguments)
    failed = 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        chosen = [each for each in inputs(folder).values() if not options.only or options.only in each.file]
        for right in chosen:
            begin, share = time.monotonic(), options.seconds / len(chosen)
            try:
                tried = attempt(right, folder, range(options.inputs), seed=options.seed, seconds=share)
            except AssertionError as error:
                failed += 1
                traceback.print_exception(error)
            else:
                rate = tried / (time.monotonic() - begin)
                print(f"{right.file:20} {tried:7} files, {rate:6.0f}/s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run())
