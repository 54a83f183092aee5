"""How far predictions of steps miss the measured ones, by system: what intervals are made of.

`python -m simcore.cost.margins` prints the table anew; a test holds it to what is computed.
"""

from __future__ import annotations

from simcore.cost.cluster import Cluster
from simcore.cost.systems import CLUSTERS

__all__ = ["MARGINS", "interval", "margin_of"]

# The |error| that nine in ten measured steps do not pass: of a system, of all with its accelerator, of all.
MARGINS: dict[str, float] = {
    "selene": 0.0209,
    "A100-SXM-80GB": 0.1669,
    "all": 0.1659,
    "selene-2021": 0.4170,
    "megascale-megatron": 0.0847,
    "megascale": 0.0925,
    "vtrain-cluster": 0.2328,
    "vtrain-node": 0.1586,
    "h100": 0.1766,
    "H100-SXM-80GB": 0.1627,
    "gb300": 0.2192,
    "GB300": 0.1579,
    "gb200": 0.1297,
    "GB200": 0.1640,
    "dgx-b300": 0.1626,
    "B300-SXM": 0.1626,
    "gb300-26.04": 0.1451,
    "gb200-26.04": 0.1640,
    "dgx-b300-26.04": 0.3425,
    "dgx-b200-26.04": 0.3770,
    "B200-SXM": 0.1314,
    "h100-26.04": 0.5239,
    "b200": 0.1190,
    "foundry-h100": 0.1435,
    "foundry-a100": 0.1282,
    "foundry-a100-40gb": 0.1286,
    "A100-SXM-40GB": 0.1286,
    "jean-zay": 0.2137,
    "jean-zay-bf16": 0.1101,
}


def margin_of(cluster: Cluster) -> float:
    """The margin of a system; nobody measured it: that of its accelerator; nobody measured that: of all."""
    name = next((name for name, known in CLUSTERS.items() if known == cluster), "")
    return next(MARGINS[key] for key in (name, cluster.accelerator, "all") if key in MARGINS)


def interval(answer: float, margin: float) -> tuple[float, float]:
    """What an answer is within a factor of 1 + `margin` of."""
    return answer / (1 + margin), answer * (1 + margin)


def main() -> None:
    """Print the table."""
    from simcore.cost.published.validate import margins

    for name, share in margins().items():
        print(f'    "{name}": {share:.4f},')


if __name__ == "__main__":
    main()
