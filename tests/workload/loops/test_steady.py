import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.workload.loops import timing
from simcore.workload.loops.schedules import family, make, names, outline
from simcore.workload.loops.timing import Durations, play, stage_ends


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
    expected = cell_by_cell(make(*run), durations)
    assert stage_ends(*run, durations).max() == pytest.approx(max(expected.values()), rel=1e-12)
    played = play(make(*run), durations)
    for stage, line in enumerate(make(*run).order):
        assert [expected[stage, cell] for cell in line] == list(played.end[stage])


def cell_by_cell(schedule, durations):
    """(stage, cell) -> its end, where every stage takes its next cell as soon as what that waits for has ended."""
    ends, at = {}, [0] * schedule.stages
    times = {"F": durations.forward, "B": durations.backward, "W": durations.weight}
    while any(count < len(line) for count, line in zip(at, schedule.order, strict=True)):
        for stage, line in enumerate(schedule.order):
            while at[stage] < len(line):
                cell = line[at[stage]]
                part = schedule.part(stage, cell.chunk)
                if cell.kind == "F":
                    other = ("F", part - 1) if part else None
                elif cell.kind == "B":
                    other = ("B", part + 1) if part + 1 < schedule.parts else ("F", part)
                else:
                    other = ("B", part)
                there = stage if other is None else schedule.stage(other[1], cell.chunk)
                awaited = [c for c in schedule.order[there] if other and c[:2] == (other[0], cell.micro_batch)]
                awaited = [c for c in awaited if schedule.part(there, c.chunk) == other[1]]
                if any((there, c) not in ends for c in awaited):
                    break
                moved = durations.transfer if there != stage else 0.0
                before = ends[stage, line[at[stage] - 1]] if at[stage] else 0.0
                ends[stage, cell] = max([before, *(ends[there, c] + moved for c in awaited)]) + times[cell.kind][part]
                at[stage] += 1
    return ends


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
    finish = timing._finish
    monkeypatch.setattr(
        timing, "_finish", lambda waves, times: played.append(waves.ends.shape[1] // 8) or finish(waves, times)
    )
    durations = Durations([1.0] * 8, [2.0] * 8)
    assert stage_ends("1f1b", 8, 100_000, None, durations).max() == pytest.approx(3.0 * (100_000 + 7))
    assert max(played) < 100
