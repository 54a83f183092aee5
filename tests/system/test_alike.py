"""One NPU that plays for all of ASTRA-sim 1.0's with a memory bus, and what it must not go on behind."""

from unittest import mock

import pytest

from simcore.engine import transports
from simcore.network.instant import Environment
from simcore.system.chunks.alike import Doubts
from simcore.system.chunks.turns import MeetingError
from tests.laws.cases_astra_sim_1 import answer, case, layer, machine, random_case, system

BUS = {"model-shared-bus": 1, "L": 10.7, "o": 1, "g": 2, "G": 0.0038}
FROM_LEFT, FROM_RIGHT, ITSELF = "left", "right", None
QUEUED, DECIDED = False, True


def ring(npus):
    """Two all-reduces on a ring with a memory bus, on their way together."""
    chosen = system("ring", preferred_dataset_splits=4) | BUS
    rows = [layer(wg=(1000, "ALLREDUCE", size_bytes)) for size_bytes in (1 << 20, 1 << 18)]
    return case("DATA", rows, machine(["Ring"], [npus], links_count=2), chosen, num_passes=1)


def test_where_all_npus_stay_alike_none_is_played_for_itself():
    with mock.patch.object(transports, "Apart", side_effect=AssertionError):
        found = answer(ring(16))
    assert found == answer(ring(16), no_fold=True)


def test_where_the_last_npu_has_another_order_all_are_played():
    """One NPU for all took 42,595 ns."""
    drawn = random_case(7310350)
    with mock.patch.object(transports, "Apart", side_effect=AssertionError), pytest.raises(AssertionError):
        answer(drawn)
    assert answer(drawn)["time_ns"] == 42_723  # the naive model's, too


@pytest.mark.parametrize("seed", range(12))
def test_one_npu_that_plays_for_all_does_what_all_do(seed):
    drawn = random_case(seed, most_npus=8)
    drawn["system"] |= BUS
    assert answer(drawn) == answer(drawn, no_fold=True)


def doubts(now_ns=5):
    """Of a run that has come so far."""
    return Doubts(Environment(now_ns))


@pytest.mark.parametrize(
    ("origins", "differ"),
    [
        ([{ITSELF}, {ITSELF}], False),
        ([{FROM_LEFT, "a"}, {FROM_LEFT, "b"}], False),  # the sender's order is that of all
        ([{FROM_LEFT, "a"}, {FROM_RIGHT, "a"}], False),  # messages of one phase stand for each other
        ([{FROM_LEFT, "a"}, {FROM_RIGHT, "b"}], True),
        ([{FROM_LEFT, "a"}, {FROM_RIGHT, "a"}, {FROM_LEFT, "b"}], True),
        ([{ITSELF}, {FROM_LEFT, "a"}], True),
    ],
)
def test_what_comes_at_one_time_since_one_time_comes_from_one(origins, differ):
    found = doubts()

    def come():
        for each in origins:
            found.come(10, frozenset(each))

    if differ:
        with pytest.raises(MeetingError):
            come()
    else:
        come()
    found._env.now += 1  # what is on its way since later comes behind
    found.come(9, frozenset(["other"]))


NEAR, FAR, INNER = (mock.Mock() for _ in range(3))
NEAR.partner, FAR.partner, INNER.partner = FAR, NEAR, None


@pytest.mark.parametrize(
    ("first", "other", "differ"),
    [
        ((NEAR, QUEUED), (NEAR, QUEUED), True),
        ((NEAR, QUEUED), (FAR, QUEUED), True),
        ((NEAR, QUEUED), (FAR, DECIDED), True),
        ((FAR, DECIDED), (NEAR, QUEUED), True),
        ((NEAR, QUEUED), (NEAR, DECIDED), False),  # it is sent then, or waits behind the same ones
        ((NEAR, DECIDED), (FAR, DECIDED), False),
        ((NEAR, QUEUED), (INNER, QUEUED), False),
    ],
)
@pytest.mark.parametrize("in_doubt", [True, False])
def test_in_doubt_two_calls_do_nothing_on_a_bus_that_depends_on_their_order(first, other, differ, in_doubt):
    found = doubts()
    if in_doubt:
        found.open()
    found.touch(*first)
    found.touch(*first)  # the same call
    found.ring()
    if differ and in_doubt:
        with pytest.raises(MeetingError):
            found.touch(*other)
    else:
        found.touch(*other)


def test_a_list_that_is_asked_for_twice_in_doubt_tells_others_one_thing():
    found = doubts()
    found.ask(3)
    found.open()
    found.ask(3)
    found._env.now += 3
    for _ in range(2):  # asked for in doubt once only
        found.ring()
        found.tell(tuple)
    found.open()
    found.ask(4)
    found.ask(4)
    found._env.now += 4
    found.ring()
    found.tell(tuple)
    found.ring()
    with pytest.raises(MeetingError):
        found.tell(tuple)


@pytest.mark.parametrize(
    ("calls", "now_ns", "differ"),
    [
        (("leave", "issue"), 0, True),  # others have issued before all leave
        (("leave", "issue"), 1, False),
        (("issue", "leave"), 0, False),
        (("issue", "issue"), 0, False),
    ],
)
def test_what_is_issued_behind_a_chunk_that_leaves_others_issue_before_it(calls, now_ns, differ):
    found = doubts()
    for call in calls[:-1]:
        found.ring()
        getattr(found, call)(tuple)
    found._env.now += now_ns
    found.ring()
    if differ:
        with pytest.raises(MeetingError):
            getattr(found, calls[-1])(tuple)
    else:
        getattr(found, calls[-1])(tuple)


def test_what_follows_does_not_join_a_list_that_is_over_for_the_others():
    found = doubts()
    found.ask(0)
    with pytest.raises(MeetingError):
        found.follow(lambda: found.ask(0))
