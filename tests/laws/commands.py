"""Whole commands on wrong files: an answer without NaN or an error that says so, never a traceback."""

import contextlib
import io
import json
import random
import re
import signal

from simcore.cli import main
from tests.laws.inputs import Input
from tests.laws.mutations import Seed

LIMIT_S = 20
KEYS = {"file", "line", "column", "field", "expected", "found", "hint"}
STEP_LIMITS = re.compile(
    rb"iterations: \d{4,}|queues_per_dim: \d{4,}|npus_count: [^\n]*\b(1e5|0x|\d{5})|splits\"?: (1e5|\d{5})"
)


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


def attempt(right: Input, folder, numbers):
    """Try some wrong files of one command: AssertionError with the first failure."""
    path, seed = folder / right.file, Seed(right.content)
    command = right.command.format(path, folder).split()
    try:
        for number in numbers:
            content = seed.changed(random.Random(f"{right.file} {number}"))  # noqa: S311 - repeatable
            if STEP_LIMITS.search(content):  # what is asked for is done, however long it takes
                continue
            path.write_bytes(content)
            try:
                check(command)
            except Exception as error:
                raise AssertionError(f"{right.file}, file {number}: {content!r}") from error
    finally:
        path.write_bytes(right.content)
