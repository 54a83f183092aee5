"""Which network suits a workload? The same step of a recommendation model on some shipped topologies.

The batch of an NPU is fixed, so more NPUs do more work in an iteration.
"""

import simcore

NAMES = ("ring8", "dgx_a100_8", "ring64", "mesh_8x8", "torus_4x4x4")


def main() -> None:
    """Print time, shares and the dimension with the most traffic, the fastest first."""
    rows = sorted((simcore.run("dlrm", name, iterations=2).to_dict()["time_ns"], name) for name in NAMES)
    print(f"{'topology':<14} {'NPUs':>4} {'iteration':>12} {'exposed':>8}  busiest dimension")
    for _, name in rows:
        print(_row(name))


def _row(name: str) -> str:
    document = simcore.run("dlrm", name, iterations=2).to_dict()
    time_ns = document["time_ns"]
    exposed = document["breakdown"]["exposed_comm_ns"] / time_ns
    busiest = max(document["dims"], key=lambda dim: dim["busy_ns"])
    words = f"{busiest['index']}: {busiest['kind']} of {busiest['npus']}, {busiest['busy_ns'] / time_ns:.0%} busy"
    return f"{name:<14} {document['npus']:>4} {time_ns / 2e3:>9.1f} us {exposed:>8.1%}  {words}"


if __name__ == "__main__":
    main()
