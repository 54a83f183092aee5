"""Messages that meet: the compiled core against the same functions in Python, as a ratio in one run."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest

from simcore.network import core
from simcore.network.compiled import Arrays, Known, installed

MESSAGES, LINKS = 200_000, 64


def _state() -> core.State:
    """Messages between random places of a ring, in kinds of one to eight hops."""
    numbers = np.random.default_rng(0)
    state = core.State.empty(timed=False)
    for hops in numbers.integers(1, 9, 512).tolist():
        first = int(numbers.integers(LINKS))
        state.link.extend((first + hop) % LINKS for hop in range(hops))
        state.step.extend([500] * hops)
        state.occupied.extend([40] * hops)
        state.hop_at.append(len(state.link))
        state.size.append(1000)
    for column in (state.free, state.carried, state.busy):
        column.extend([0] * LINKS)
    for name in ("layout", "shift", "order", "base", "slot", "mark"):
        getattr(state, name).append(-1 if name == "layout" else 0)
    for number, (kind, at) in enumerate(
        zip(numbers.integers(512, size=MESSAGES).tolist(), numbers.integers(10**6, size=MESSAGES).tolist(), strict=True)
    ):
        core.hand_over(state, 0, number, 0, kind, at)
    return state


def _seconds(columns: core.Lists | Arrays) -> float:
    columns.follow(MESSAGES)
    before = process_time()
    while True:
        then = columns.core.play(columns.state, core.NEVER, -1)
        columns.left()
        if then == core.NEVER:
            return process_time() - before


def _arrays(state: core.State) -> Arrays:
    return Arrays(state, Known(state))


def bench_messages_that_meet(benchmark):
    if not installed():
        pytest.skip("needs simcore[fast]")
    _seconds(_arrays(_state()))  # compiles
    fast = benchmark.pedantic(_seconds, (_arrays(_state()),), rounds=1)
    plain = _seconds(core.Lists(_state()))
    benchmark.extra_info |= {"us_a_message": fast / MESSAGES * 1e6, "in_python_us": plain / MESSAGES * 1e6}
    assert fast < plain
