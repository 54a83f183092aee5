import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore.workload.loops.steady as steady
from simcore.workload.loops.schedules import Durations, family, make, names, outline, play
from simcore.workload.loops.steady import length


@st.composite
def runs(draw):
    """A schedule of many micro-batches, with uneven parts of the model."""
    name = draw(st.sampled_from(names()))
    stages = draw(st.integers(1, 4))
    stages += stages % 2 if name == "dualpipe" else 0
    count = draw(st.integers(1, 25)) * stages + (0 if name in ("interleaved", "dualpipe") else draw(st.integers(0, 3)))
    chunks = draw(st.integers(2, 3)) if name == "interleaved" else None
    return name, stages, max(2 * stages, count + count % 2) if name == "dualpipe" else count, chunks


@settings(max_examples=60, deadline=None)
@given(runs(), st.data())
def test_a_schedule_takes_as_long_as_playing_all_of_it(run, data):
    parts = outline(*run).parts
    times = st.lists(st.sampled_from((1.0, 1.0, 1.1, 1.7)), min_size=parts, max_size=parts)
    durations = Durations(*(data.draw(times) for _ in range(3)), transfer=data.draw(st.sampled_from((0.0, 0.3))))
    assert length(*run, durations) == pytest.approx(play(make(*run), durations).makespan, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "stages"),
    [(name, stages) for name in names() for stages in (2, 3, 4, 6, 9) if name != "dualpipe" or stages % 2 == 0],
)
def test_a_period_more_of_micro_batches_inserts_cells_and_changes_no_other(name, stages):
    """The parts of a line ahead and behind the insertion are those of the shorter schedule, counted from either end."""
    shape = family(name)
    repeats = shape.period(stages)
    short = -(-4 * stages // repeats) * repeats
    pairs = zip(make(name, stages, short).order, make(name, stages, short + repeats).order, strict=True)
    for line, longer in pairs:
        ahead = common(numbered(line, short, 0), numbered(longer, short + repeats, 0))
        behind = common(numbered(line, short, 1)[::-1], numbered(longer, short + repeats, 1)[::-1])
        assert ahead + behind >= len(line)


def numbered(line, micro_batches, from_the_end):
    """(kind, chunk, micro-batch counted from the first or the last of its direction)."""
    halves = any(cell.chunk and cell.micro_batch >= micro_batches // 2 for cell in line) and not any(
        cell.chunk and cell.micro_batch < micro_batches // 2 for cell in line
    )
    count = micro_batches // 2 if halves else micro_batches
    return [(cell.kind, cell.chunk, cell.micro_batch % count - count * from_the_end) for cell in line]


def common(one, other):
    return next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def test_many_micro_batches_are_played_by_few(monkeypatch):
    played = []
    finish = steady._finish
    monkeypatch.setattr(
        steady, "_finish", lambda waves, times: played.append(waves.ends.shape[1] // 8) or finish(waves, times)
    )
    durations = Durations([1.0] * 8, [2.0] * 8)
    assert length("1f1b", 8, 100_000, None, durations) == pytest.approx(3.0 * (100_000 + 7))
    assert max(played) < 100
