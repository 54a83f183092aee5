"""Networks with queues, played by themselves: what every test of `network.queued` needs."""

from dataclasses import replace

from simcore.network.instant import Environment
from simcore.network.queued.network import Queued
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.ports import PLAIN

KIB, MIB = 1 << 10, 1 << 20
RATE = 1e9  # a byte takes a nanosecond


def machine(kind="Switch", npus=8, latency_ns=100.0, ports=PLAIN, bytes_per_s=RATE, **more):
    dims = (Dimension(kind, npus, bytes_per_s, latency_ns, ports=ports, **more),)
    return LinkGraph(Topology(dims))


def play(links, messages, network=Queued, keys=None):
    """Times of arrival of messages (src, dst, bytes, start), and the network."""
    env = Environment()
    played, arrived = network(env, links), {}

    def send(number, src, dst, size, start_ns):
        yield env.timeout(start_ns)
        played.send(
            src,
            dst,
            size,
            (keys[number] if keys else number,),
            lambda: arrived.setdefault(number, int(env.now)),
        )

    for number, message in enumerate(messages):
        env.process(send(number, *message))
    env.run()
    return [arrived.get(number) for number in range(len(messages))], played


def curves(queues):
    """Of every link the times and values of its curves, which are those that the columns sum up."""
    found = [queues.curves_of(link) for link in range(len(queues.marks))]
    sums = zip(queues.peak_bytes, queues.still_ns, queues.marks, queues.drops, strict=True)
    for (waiting, *others), (peak_bytes, *figures) in zip(found, sums, strict=True):
        assert waiting[1].max(initial=0) == peak_bytes
        assert [values.sum() for _, values in others] == figures
    return [[column.tolist() for curve in of_link for column in curve] for of_link in found]


def segments(size, buffer, control, **more):
    return replace(PLAIN, segment_bytes=size, buffer_bytes=buffer, flow_control=control, **more)


def pfc(segment=4 * KIB, xoff=64 * KIB, latency_ns=100, **more):
    room = 2 * latency_ns + 2 * segment
    return segments(segment, xoff + room, "pfc", xoff_bytes=xoff, xon_bytes=xoff - 2 * segment, **more)
