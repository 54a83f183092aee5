"""Buffers that wait for each other in a circle: the deadlock of links that lose nothing."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from simcore.network.queued.ports import Port

__all__ = ["waits_in_a_circle"]


def waits_in_a_circle(ports: Sequence[Port]) -> list[int]:
    """Links each of which waits for room behind it, taken by what waits for the next; [] where there is no circle."""
    blocked = {port.link for port in ports if port.queue and not port.admits(port.queue[0])}
    waits = nx.DiGraph(
        (segment.held, port.link)
        for port in ports
        if port.link in blocked
        for segment in port.queue
        if segment.held in blocked
    )
    try:
        return [link for link, _ in nx.find_cycle(waits)]
    except nx.NetworkXNoCycle:
        return []
