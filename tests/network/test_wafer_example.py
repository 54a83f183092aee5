"""An expert layer of DeepSeek-V3 on a wafer of 7 x 8 nodes: what the links carry, computed independently elsewhere."""

import base64
import json
import zlib

import numpy as np
import pytest

from simcore.network.batch import solve_batch
from simcore.network.topology.links import LinkGraph
from simcore.network.topology.model import Dimension, Topology
from tests.shared import shared

NODES, BATCH, EXPERTS, COPIES = 56, 1024, 256, 4
VECTOR_BYTES = 7168 * 2


def buckets(items, count):
    """Bucket of every item when they are dealt out in contiguous, even parts, the first ones larger."""
    sizes = [items // count + (place < items % count) for place in range(count)]
    return np.repeat(np.arange(count), sizes)


@pytest.fixture(scope="module")
def flows():
    """Sources and destinations of all vectors: dispatch (once per node), then combine (once per expert)."""
    run = json.loads(shared("oracle", "wse.json").read_text())["runs"]["dsv3_default56_bsz1024"]
    stored = run["result"]["iters"]["decode0"]["routing"]["decode10_moe"]
    routing = np.frombuffer(zlib.decompress(base64.b64decode(stored["zlib_b64"])), "<u2").reshape(stored["shape"])
    cluster = buckets(BATCH, 7)
    home = np.concatenate([8 * index + buckets((cluster == index).sum(), 8) for index in range(7)])
    expert_node = buckets(EXPERTS, NODES)
    copy_node = buckets(BATCH, COPIES) * (NODES // COPIES)
    visits = np.stack([*expert_node[routing[:, :, 0]], copy_node])  # (experts of a token and a shared one, token)
    dispatch = [(home[b], node) for b in range(BATCH) for node in sorted({*visits[:, b]} - {home[b]})]
    combine = [(node, home[b]) for b in range(BATCH) for node in visits[:, b] if node != home[b]]
    return np.array(dispatch), np.array(combine)


def test_bytes_hops_and_hottest_link_are_those_of_the_reference(flows):
    """Figures: reference wse.md section 7 (XY routing, traffic to oneself excluded)."""
    dispatch, combine = flows
    assert len(dispatch) * VECTOR_BYTES == pytest.approx(121.1e6, rel=1e-3)
    assert len(combine) * VECTOR_BYTES == pytest.approx(129.0e6, rel=1e-3)
    links = LinkGraph(Topology((Dimension("Mesh", 8, 100e9, 1.0), Dimension("Mesh", 7, 100e9, 1.0))))
    src, dst = np.concatenate(flows).T
    batch = solve_batch(links, links.routes(src, dst), VECTOR_BYTES, 0)
    assert np.count_nonzero(batch.size_bytes) == 194
    assert batch.size_bytes.max() == pytest.approx(11.9e6, rel=5e-3)
    assert batch.size_bytes.mean() == pytest.approx(6.27e6, rel=1e-3)
    assert links.routes(src, dst).counts.mean() == pytest.approx(4.86, rel=1e-3)
    assert np.bincount(src).max() * VECTOR_BYTES == pytest.approx(7.7e6, rel=5e-3)
    assert batch.arrival_ns.max() >= batch.size_bytes.max() / 100  # 100 bytes per ns: no link beats its bandwidth
