from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.errors import InputError, SimulationError
from simcore.workload.loops.schedules import Cell, Schedule, make, names, parse
from simcore.workload.loops.timing import Durations, play, show

ALL = tuple(names())


@st.composite
def schedules(draw, kinds=ALL):
    """Any schedule that exists."""
    name = draw(st.sampled_from(kinds))
    stages = draw(st.integers(1, 6))
    if name == "dualpipe":
        stages += stages % 2
        return make(name, stages, 2 * stages + 2 * draw(st.integers(0, 4)))
    count = draw(st.integers(1, 5))
    chunks = draw(st.integers(1, 3)) if name == "interleaved" else None
    return make(name, stages, count * stages if name == "interleaved" else draw(st.integers(1, 16)), chunks)


def unit(schedule, weight=1):
    """F = 1; B = 2 whole, or 1 + W."""
    parts = [1] * schedule.parts
    return Durations(parts, parts if schedule.splits_backward else [2] * schedule.parts, [weight] * schedule.parts)


def bubble(schedule):
    """Idle time of the busiest stage with F = B = W = 1."""
    played = play(schedule, unit(schedule))
    return played.makespan - max(played.busy(stage) for stage in range(schedule.stages))


@given(schedules())
def test_every_stage_runs_every_cell_once_and_a_forward_before_its_backward_before_its_weight_gradient(schedule):
    for stage, line in enumerate(schedule.order):
        assert max(Counter(line).values()) == 1
        places = {cell: index for index, cell in enumerate(line)}
        for cell in line:
            if cell.kind == "B":
                assert places[cell._replace(kind="F")] < places[cell]
            if cell.kind == "W":
                assert places[cell._replace(kind="B")] < places[cell]
        halved = 2 if schedule.placement == "twoway" else 1
        kinds = 3 if schedule.splits_backward else 2
        assert len(line) * halved == kinds * schedule.micro_batches * schedule.chunks, stage


@given(schedules(), st.floats(0, 3))
def test_every_schedule_finishes_and_no_input_is_used_before_it_arrives(schedule, transfer):
    steps = unit(schedule)
    played = play(schedule, Durations(steps.forward, steps.backward, steps.weight, transfer))
    ends = {}
    for stage, line in enumerate(schedule.order):
        for cell, end in zip(line, played.end[stage], strict=True):
            ends[cell.kind, cell.micro_batch, schedule.part(stage, cell.chunk)] = end
    for stage, line in enumerate(schedule.order):
        for cell, start in zip(line, played.start[stage], strict=True):
            part = schedule.part(stage, cell.chunk)
            before = ("F", cell.micro_batch, part - 1) if cell.kind == "F" else ("B", cell.micro_batch, part + 1)
            if cell.kind != "W" and before in ends:
                assert start >= ends[before]


@given(schedules())
def test_a_printed_schedule_parses_back(schedule):
    assert parse(show(schedule)) == schedule


@given(schedules(("gpipe", "1f1b")))
def test_gpipe_and_1f1b_idle_for_p_minus_1_micro_batches(schedule):
    """(p - 1) / m of the ideal (reference: collectives.md, section 9)."""
    assert bubble(schedule) == 3 * (schedule.stages - 1)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_interleaving_divides_the_bubble_by_the_chunks(stages, groups, chunks):
    schedule = make("interleaved", stages, stages * groups, chunks)
    ideal = 3 * schedule.micro_batches * chunks
    assert bubble(schedule) / ideal == pytest.approx((stages - 1) / (chunks * schedule.micro_batches))


@given(st.integers(1, 8), st.integers(0, 12))
def test_zb_h1_idles_a_third_of_1f1b_at_the_same_memory(stages, more):
    schedule = make("zb-h1", stages, 2 * stages + more)
    assert bubble(schedule) == stages - 1
    for line in schedule.order:
        held = peak = 0
        for cell in line:
            held += {"F": 1, "B": 0, "W": -1}[cell.kind]
            peak = max(peak, held)
        assert peak <= stages


@given(st.integers(1, 8), st.integers(0, 12))
def test_zb_v_leaves_little_more_than_the_fill_of_one_cell_per_stage(stages, more):
    """About 0 by Qi et al. 2024; the fill of p - 1 cells is inevitable, the greedy order adds at most p / 2."""
    assert bubble(make("zb-v", stages, 2 * stages + more)) <= (stages - 1) + stages / 2


@given(st.integers(1, 4), st.integers(0, 6))
def test_dualpipe_idles_half_the_stages_minus_1(half, more):
    """(p/2 - 1) (F&B + B - 3 W) of the DeepSeek-V3 report, with F = B = W."""
    stages = 2 * half
    assert bubble(make("dualpipe", stages, 2 * stages + 2 * more)) == half - 1


@given(st.integers(2, 6), st.integers(2, 12), st.integers(1, 5))
def test_a_transfer_delays_the_first_micro_batch_once_per_hop_and_back(stages, micro_batches, transfer):
    one = [1] * stages
    still, moved = (play(make("gpipe", stages, micro_batches), Durations(one, one, (), x)) for x in (0, transfer))
    assert moved.makespan == still.makespan + 2 * (stages - 1) * transfer


def test_an_order_that_cannot_finish_says_who_waits():
    wrong = Schedule("wrong", 1, 1, 1, "loop", ((Cell("B", 0), Cell("F", 0)),))
    with pytest.raises(SimulationError, match="stage 0 waits"):
        play(wrong, Durations([1], [1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1f2b", 2, 4), "1f1b"),
        (("interleaved", 4, 6), "multiple of 4"),
        (("dualpipe", 3, 8), "even"),
        (("zb-v", 2, 4, 3), "2"),
    ],
)
def test_a_schedule_that_does_not_exist_says_what_would(arguments, message):
    with pytest.raises(InputError, match=message):
        make(*arguments)


@pytest.mark.parametrize(
    ("head", "rows", "said"),
    [
        ("1 stages, 1 micro-batches, 1 chunk, loop", ["0 | F0  X1"], "plan:2:9.*not a cell"),
        ("1 stages, 2 micro-batches, 1 chunk, loop", ["0 | F0  F2"], "plan:2:9.*not a cell"),
        ("1 stages, 2 micro-batches, 1 chunk, loop", ["0 | F0  F0.1"], "plan:2:9.*not a cell"),
        ("1 stages, 2 micro-batches, 1 chunk, loop", ["0 | F0  F0"], "plan:2:9.*not a cell"),
        ("2 stages, 2 micro-batches, 2 chunks, twoway", ["0 | F0  F0.1", "1 | F1"], "plan:2:9.*not a cell"),
        ("2 stages, 2 micro-batches, 1 chunk, loop", ["0 | F0 F1 B0 B1", "1 | F0 B0 F1"], "plan:3:1.*missing"),
        ("1 stages, 1 micro-batches, 1 chunk, loop", ["0 | ."], "plan:2:1.*missing"),
        ("2 stages, 1 micro-batches, 1 chunk, loop", ["1 | F0", "0 | F0"], "plan:2:1.*next stage"),
        ("2 stages, 1 micro-batches, 1 chunk, loop", ["0 | F0"], "plan:1:1.*number of rows"),
        ("0 stages, 1 micro-batches, 1 chunk, loop", [], "plan:1:1.*no such schedule"),
        ("1 stages, 1 micro-batches, 1 chunk, v", ["0 | F0"], "plan:1:1.*no such schedule"),
        ("some stages", [], "plan:1:1.*head"),
    ],
)
def test_what_is_wrong_in_a_grid_is_located(head, rows, said):
    with pytest.raises(InputError, match=said):
        parse("\n".join([f"schedule own: {head}", *rows]), "plan")
