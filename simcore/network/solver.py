"""Max-min fair rates: nobody can get more without taking from somebody who has no more."""

from __future__ import annotations

import numpy as np

from simcore.network.topology.fabric import FloatArray, Routes

TOLERANCE = 1e-12


def max_min_rates(routes: Routes, capacity_bytes_per_s: FloatArray) -> FloatArray:
    """Rate of every flow, in bytes per second; infinite for a flow that takes no link.

    Water filling (Bertsekas and Gallager, Data Networks, section 6.5): a link whose equal share is the least of all
    links of each of its flows is a bottleneck, and its flows are settled. All such links are settled in one round, so
    rounds are few even when levels are many.
    """
    flows = np.repeat(np.arange(len(routes.counts)), routes.counts)
    links = routes.links
    rates = np.full(len(routes.counts), np.inf)
    left = capacity_bytes_per_s.astype(np.float64).copy()
    while len(flows):
        share = left / np.maximum(np.bincount(links, minlength=len(left)), 1)
        wanted = np.full(len(rates), np.inf)
        np.minimum.at(wanted, flows, share[links])
        # A link is a bottleneck unless one of its flows is held further down by another link.
        held = wanted[flows] < share[links] * (1 - TOLERANCE)
        bottleneck = np.ones(len(left), bool)
        bottleneck[links[held]] = False
        settled = np.zeros(len(rates), bool)
        settled[flows[bottleneck[links]]] = True
        rates[settled] = wanted[settled]
        gone = settled[flows]
        left -= np.bincount(links[gone], rates[flows[gone]], len(left))
        np.maximum(left, 0.0, out=left)
        flows, links = flows[~gone], links[~gone]
    return rates
