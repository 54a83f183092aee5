"""Finite buffers: what they must not change, what they cost, and who waits for whom."""

from hypothesis import given
from hypothesis import strategies as st

from simcore.network.congested import CutThrough
from tests.queues import KIB, MIB, machine, pfc, play, segments

kinds = st.sampled_from(
    [("Switch", {}), ("Ring", {}), ("Mesh", {}), ("FatTree", {"routers": 4}), ("FullyConnected", {})]
)
sizes = st.integers(0, 50_000)
message_lists = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), sizes, st.integers(0, 3000)), min_size=1, max_size=20
)


@given(kinds, st.sampled_from([0.0, 0.4, 100.0]), message_lists)
def test_without_limits_messages_take_what_they_take_on_shared_links(kind, latency_ns, messages):
    links = machine(kind[0], 8, latency_ns, **kind[1])
    (queued, played), (shared, other) = play(links, messages), play(links, messages, CutThrough)
    assert queued == shared
    for mine, theirs in zip(played.counts(), other.counts(), strict=True):
        assert mine.tolist() == theirs.tolist()


@given(st.sampled_from(["credits", "pfc", "drop"]), st.integers(2, 7), st.integers(1, 300))
def test_an_incast_takes_the_time_of_its_bytes_on_the_last_link(control, senders, kib):
    """n to 1: the last link is never idle once the first byte is there; a first segment and two latencies more."""
    ports = pfc() if control == "pfc" else segments(4 * KIB, 256 * KIB, control)
    times, played = play(machine(ports=ports), [(src, 0, kib * KIB, 0) for src in range(1, senders + 1)])
    work = senders * kib * KIB
    assert max(times) >= work + 200
    if not played.table().queues.drops.any():
        assert max(times) == work + 200


def paused(played):
    table = played.table().queues
    return {name: int(getattr(table, name).sum()) for name in ("still_ns", "stops", "drops", "dropped_bytes")}


def test_pauses_of_an_incast_take_the_share_of_time_that_senders_have_too_much():
    """Two senders at line rate into one port: each may send half of the time, and pauses take the other half."""
    size = 4 * MIB
    times, played = play(machine(npus=3, ports=pfc()), [(1, 0, size, 0), (2, 0, size, 0)])
    assert max(times) == 2 * size + 200
    for link in (1, 2):
        port = played.ports[link]
        # When a sender is done as much as XOFF lies in its buffer, and as much of the other's goes with it: give or
        # take what is between XOFF and XON on either side.
        assert abs(port.still_ns - (size - 2 * 64 * KIB)) <= 2 * 3 * 4 * KIB
        assert port.drops == 0


def test_one_pause_takes_as_long_as_the_buffer_takes_to_drain():
    """From XOFF to XON at half the line rate: two segments drain in four segments' time, and the pipe beyond fills."""
    segment, latency_ns = 4 * KIB, 100
    _, played = play(machine(npus=3, ports=pfc()), [(1, 0, 4 * MIB, 0), (2, 0, 4 * MIB, 0)])
    port = played.ports[1]
    mean_ns = port.still_ns / port.stops
    assert 2 * 2 * segment - 2 * segment <= mean_ns <= 2 * (2 * segment + 2 * segment) + 2 * latency_ns


def test_a_pause_slows_a_victim_that_does_not_cross_the_full_link():
    """NPU 1 sends to the congested NPU 0 and to the idle NPU 5: its uplink is paused for both."""
    messages = [(src, 0, 2 * MIB, 0) for src in (1, 2, 3, 4)]
    victim = (1, 5, 256 * KIB, 0)
    free, _ = play(machine(npus=6, ports=segments(4 * KIB, 64 * MIB, "pfc", xoff_bytes=60 * MIB)), [*messages, victim])
    held, played = play(machine(npus=6, ports=pfc()), [*messages, victim])
    assert free[-1] <= 2 * 256 * KIB + 8 * KIB + 200
    assert held[-1] > 1.5 * free[-1]
    assert max(held) == max(free)  # the full link is never idle
    assert paused(played)["drops"] == 0


def test_pauses_spread_hop_by_hop_to_who_sends():
    """On a line 3 > 2 > 1 > 0 with NPU 1 sending to 0 as well: the links behind the full one are paused in turn."""
    _, played = play(machine("Mesh", 4, ports=pfc()), [(3, 0, 4 * MIB, 0), (1, 0, 4 * MIB, 0)])
    up = {int(src): played.ports[link] for link, src in enumerate(played.links.src) if played.links.dst[link] < src}
    assert up[2].stops
    assert up[3].stops
    assert up[2].still_ns > up[3].still_ns > 0


@given(st.integers(1, 64), st.integers(0, 20_000))
def test_credits_send_a_buffer_in_a_round_trip(segments_of_buffer, latency_ns):
    """A lone sender: a credit is back after the next link has taken its segment and its own latency."""
    segment = 4 * KIB
    ports = segments(segment, segments_of_buffer * segment, "credits")
    count = 200
    times, _ = play(machine(latency_ns=latency_ns, ports=ports), [(1, 0, count * segment, 0)])
    period_ns = max(2 * latency_ns + segment, segments_of_buffer * segment)  # for each buffer full
    expected = (count - 1) // segments_of_buffer * period_ns
    expected += (count - 1) % segments_of_buffer * segment + segment + 2 * latency_ns
    assert times[0] == expected


incasts = st.tuples(st.integers(2, 6), st.integers(1, 400), st.integers(2, 64))


@given(incasts)
def test_every_byte_arrives_whatever_is_dropped(incast):
    senders, kib, room = incast
    ports = segments(4 * KIB, room * 4 * KIB, "drop")
    times, played = play(machine(ports=ports), [(src, 0, kib * KIB, 0) for src in range(1, senders + 1)])
    assert None not in times
    sent, table = played.counts()[0], played.table().queues
    up, down = sent[:8], sent[8:]
    assert down[0] == senders * kib * KIB
    assert up.sum() == down[0] + table.dropped_bytes.sum()  # what was dropped was sent again


@given(incasts, st.integers(1, 64))
def test_more_buffer_never_drops_more(incast, more):
    senders, kib, room = incast
    messages = [(src, 0, kib * KIB, 0) for src in range(1, senders + 1)]
    few, many = (
        paused(play(machine(ports=segments(4 * KIB, size * 4 * KIB, "drop")), messages)[1])["dropped_bytes"]
        for size in (room, room + more)
    )
    assert many <= few


def test_a_circle_of_full_buffers_is_told():
    """Four NPUs of a ring send two hops up at once, with room for one segment behind each link."""
    ports = segments(4 * KIB, 4 * KIB, "credits")
    times, played = play(machine("Ring", 4, ports=ports), [(npu, (npu + 2) % 4, 64 * KIB, 0) for npu in range(4)])
    assert times == [None] * 4
    told = played.stuck()
    assert told[0] == "the buffers of 4 links wait for each other in a circle"
    assert {line.split(" waits")[0] for line in told[1:5]} == {f"link {npu} -> {(npu + 1) % 4}" for npu in range(4)}


@given(st.permutations(range(6)), st.sampled_from(["credits", "pfc", "drop"]))
def test_the_order_of_calls_never_matters(order, control):
    ports = pfc() if control == "pfc" else segments(4 * KIB, 128 * KIB, control)
    links = machine(npus=6, ports=ports)
    messages = {number: (number, 0, 90_000, 0) for number in range(6)}
    turned, _ = play(links, [messages[number] for number in order], keys=order)
    assert turned == [play(links, [*messages.values()])[0][number] for number in order]
