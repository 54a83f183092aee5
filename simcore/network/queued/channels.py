"""Virtual channels: which one a way takes on each link, and what waits in a circle where they are too few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simcore.network.parts import FoldedLinks
from simcore.network.queued.routing import Links
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.ports import MOST_CHANNELS

MOST_SHOWN = 6
"""So many links of a circle are told, so that hints follow within what an error shows."""


def channels_of(links: LinkGraph, way: Links) -> Iterator[tuple[int, int]]:
    """The channel of each link of a way, as if there were enough of them, and the dimension.

    Where it does not go on over a higher link of the dimension a way takes the next channel. So (channel, height) grows
    on every way, and no channels wait for each other in a circle (Dally & Seitz 1987).
    """
    channel, before = 0, (-1, 0)
    for dim, height in zip(links.dims[[*way]].tolist(), links.heights[[*way]].tolist(), strict=True):
        channel = (channel + (height <= before[1])) * (dim == before[0])
        before = dim, height
        yield channel, dim


def channel_rows(links: LinkGraph, way: Links) -> Iterator[int]:
    """The rows of the channels that a way takes: the first ones of all links come before the second ones."""
    dims = links.topology.dims
    for link, (channel, dim) in zip(way, channels_of(links, way), strict=True):
        yield link + min(channel, dims[dim].ports.channels - 1) * len(links)


def told_circle(links: LinkGraph, waits: set[tuple[int, int]], ways: Iterable[Links]) -> list[str]:
    """Links each of which waits for room behind it, taken by what waits for the next; [] where there is no circle.

    Given are rows of channels, and all ways that are taken. All of a circle are last channels: in others ways rise.
    """
    import networkx

    try:
        circle = [row % len(links) for row, _ in networkx.find_cycle(networkx.DiGraph(waits))]
    except networkx.NetworkXNoCycle:
        return []
    dim = links.dims[circle[0]]
    enough = 1 + max(channel for way in ways for channel, own in channels_of(links, way) if own == dim)
    if isinstance(links, FoldedLinks):
        circle, links = links.unfolded(circle), links.whole
    names, src, dst = links.names, links.src, links.dst
    ends = [f"{names[src[link]]} -> {names[dst[link]]}" for link in circle]
    lines = [
        f"link {here} waits for room at its end, which is taken by what waits for link {ahead}"
        for here, ahead in zip(ends, ends[1:] + ends[:1], strict=True)
    ]
    if len(lines) > MOST_SHOWN:
        lines[MOST_SHOWN - 1 :] = [f"and so on, {len(lines) - MOST_SHOWN + 1} more, back to link {ends[0]}"]
    hints = (
        f"hint: {enough} virtual_channels in its dimension break the circle" * (enough <= MOST_CHANNELS),
        "hint: routes that take links in one order (a Mesh in place of a Ring) have no circles; more buffer may help",
    )
    return [f"the buffers of {len(ends)} links wait for each other in a circle", *lines, *filter(None, hints)]
