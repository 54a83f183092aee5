"""Makes the shipped text workloads whose figures are computed: `python workloads/make.py` writes them beside this file.

Compute times are `simcore.compute`'s for an A100 in bfloat16, forward, input gradient and weight gradient apart; sizes
follow from the models' public shapes. dlrm.txt and the micro-benchmarks are written by hand; gpt_7b.txt is made by the
command in README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path

from simcore.compute.accelerators import accelerator
from simcore.compute.duration import duration
from simcore.compute.kernel import Product
from simcore.workload import text
from simcore.workload.model import CollectiveKind, Layer, Phase, Workload

BATCH, ELEMENT_BYTES, GRADIENT_BYTES = 32, 2, 4
STAGES = ((64, 56, 3), (128, 28, 4), (256, 14, 6), (512, 7, 3))  # width, output size, blocks (He et al. 2016, table 1)
MLP_WIDTHS, MLP_BATCH, MLP_RANKS = (4096, 16384, 16384, 16384, 16384, 4096, 1024), 512, 64


@dataclass(frozen=True)
class Gemm:
    """A matrix product of m x k and k x n."""

    name: str
    m: int
    n: int
    k: int

    def time_ns(self) -> int:
        """On an A100."""
        return ceil(duration(Product(self.m, self.n, self.k), accelerator("A100-80GB"), "bf16").seconds * 1e9)


def convolutions() -> Iterator[tuple[Gemm, int]]:
    """ResNet-50's convolutions and its classifier as matrix products, with their weights."""
    yield convolution("conv1", 112, 7, 3, 64)
    channels = 64
    for stage, (width, size, blocks) in enumerate(STAGES, 2):
        for block in range(1, blocks + 1):
            name = f"conv{stage}_{block}"
            if block == 1:
                yield convolution(f"{name}_shortcut", size, 1, channels, 4 * width)
            yield convolution(f"{name}_a", size, 1, channels, width)
            yield convolution(f"{name}_b", size, 3, width, width)
            yield convolution(f"{name}_c", size, 1, width, 4 * width)
            channels = 4 * width
    yield Gemm("classifier", BATCH, 1000, channels), 1000 * channels


def convolution(name: str, size: int, kernel: int, channels: int, filters: int) -> tuple[Gemm, int]:
    """A convolution with an output of size x size."""
    depth = kernel * kernel * channels
    return Gemm(name, BATCH * size * size, filters, depth), depth * filters


def resnet50() -> Workload:
    """Data parallel: the gradients of every layer are reduced in 32 bits."""
    layers = []
    for gemm, weights in convolutions():
        grads = Phase(transposed(gemm, "weight").time_ns(), CollectiveKind.ALL_REDUCE, weights * GRADIENT_BYTES)
        layers.append(Layer(gemm.name, Phase(gemm.time_ns()), Phase(transposed(gemm, "input").time_ns()), grads))
    return Workload("DATA", tuple(layers))


def mlp() -> Workload:
    """Model parallel: weights are split by columns, activations gathered, their gradients reduced."""
    layers = []
    for index, (wide, narrow) in enumerate(pairwise(MLP_WIDTHS)):
        gemm = Gemm(f"mlp{index}", MLP_BATCH, narrow // MLP_RANKS, wide)
        share_bytes = MLP_BATCH * (narrow // MLP_RANKS) * ELEMENT_BYTES
        forward = Phase(gemm.time_ns(), CollectiveKind.ALL_GATHER, share_bytes)
        grads_bytes = MLP_BATCH * wide * ELEMENT_BYTES
        input_grad = Phase(transposed(gemm, "input").time_ns(), CollectiveKind.ALL_REDUCE, grads_bytes)
        layers.append(Layer(gemm.name, forward, input_grad, Phase(transposed(gemm, "weight").time_ns())))
    return Workload("MODEL", tuple(layers))


def transposed(gemm: Gemm, gradient: str) -> Gemm:
    """The product that makes the gradient of the input or of the weight."""
    if gradient == "input":
        return Gemm(gemm.name, gemm.m, gemm.k, gemm.n)
    return Gemm(gemm.name, gemm.k, gemm.n, gemm.m)


def main() -> None:
    """Write the files."""
    here = Path(__file__).parent
    for name, workload in {"resnet50_data_parallel": resnet50(), "mlp_model_parallel": mlp()}.items():
        (here / f"{name}.txt").write_text(text.write(workload))


if __name__ == "__main__":
    main()
