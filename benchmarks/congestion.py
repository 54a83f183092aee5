"""The table of docs/queues.md: where laws of congestion control settle, against what their papers' equations say.

    python -m benchmarks.congestion     # a minute

The equations are those of `tests/network/queued/test_published.py`: DCQCN's fluid model (Zhu et al., CoNEXT 2016,
section 3), HPCC's window (Li et al., SIGCOMM 2019, section 3.2), Swift's target (Kumar et al., SIGCOMM 2020, section
3.1). They, and the numbers of their sections, were written down from memory of the papers.
"""

from __future__ import annotations

from tests.network.queued.test_published import MARKING, dcqcn_queue_bytes, settled

RATE_BYTES_PER_S = 5e9
FLOWS = (2, 4, 8)


def rows() -> list[tuple[str, int, str, str]]:
    """Law, flows, what is expected and what is played."""
    found = []
    for flows in FLOWS:
        segment = MARKING.packet_bytes
        queue_bytes, _ = settled("dcqcn", flows, RATE_BYTES_PER_S, segment, 40_000_000, MARKING)
        expected = f"{dcqcn_queue_bytes(flows, RATE_BYTES_PER_S) / 1e3:.1f} kB"
        found.append(("dcqcn", flows, expected, f"{queue_bytes / 1e3:.1f} kB"))
    for flows in (2, 5, 10):
        queue_bytes, use = settled("hpcc", flows, RATE_BYTES_PER_S, 1024, 600_000)
        found.append(("hpcc", flows, f"{95 + 0.5 * flows:.1f} %", f"{100 * use:.1f} %, {queue_bytes / 1e3:.1f} kB"))
    for flows in FLOWS:
        queue_bytes, _ = settled("swift", flows, RATE_BYTES_PER_S, 1024, 2_000_000)
        found.append(("swift", flows, "50 kB", f"{queue_bytes / 1e3:.0f} kB"))
    return found


if __name__ == "__main__":
    for law, flows, expected, played in rows():
        print(f"{law:6} {flows:3} flows: {expected:>9} expected, {played} played")
