"""What a prediction rests on: its kernels with their times and where these come from, the watts they draw."""

from dataclasses import asdict, dataclass
from functools import cached_property
from math import fsum

from simcore.compute.accelerators import accelerator
from simcore.compute.kernel import Attention, Duration, GroupedProduct, Product, Source
from simcore.compute.kernel import Kernel as Work
from simcore.compute.power import energy_j
from simcore.cost.cluster import Cluster
from simcore.cost.predict import part_cells
from simcore.model.layer import model_blocks
from simcore.model.plan import Plan
from simcore.model.shape import Model
from simcore.model.steps import Kernel, in_phase
from simcore.model.timing import COLD, computed_in, duration
from simcore.workload.model import PhaseName


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel of a micro-batch in one pass, how often the model has it, what one takes and in which type."""

    kernel: Kernel
    phase: PhaseName
    count: int
    known: Duration
    dtype: str

    @property
    def seconds(self) -> float:
        """Of all of them."""
        return self.count * self.known.seconds

    def __str__(self) -> str:
        return f"{self.kernel.part.replace('_', ' ')}: {told(self.kernel.work)}, {self.phase.value.replace('_', ' ')}"


def told(work: Work) -> str:
    """A kernel's work in a few words.

    >>> told(Product(4096, 1024, 512)), told(Attention(1, 32, 8, 4096, 4096, 128))
    ('4096 x 1024 x 512', '1 x 32 heads, 4096 tokens')
    """
    if isinstance(work, Product):
        return f"{work.batch} of " * (work.batch > 1) + f"{work.m} x {work.n} x {work.k}"
    if isinstance(work, GroupedProduct):
        return f"{work.experts} of {work.tokens // work.experts} x {work.n} x {work.k}"
    if isinstance(work, Attention):
        queries = f"{work.queries} of " * (work.queries < work.keys)
        return f"{work.batch} x {work.heads} heads, {queries}{work.keys} tokens"
    return f"{work.operation.value} pass over {work.bytes / 1e6:.0f} MB"


@dataclass(frozen=True)
class Basis:
    """The kernels of a model's training step under a plan on a cluster, and what their times rest on."""

    model: Model
    plan: Plan
    cluster: Cluster

    @cached_property
    def kernels(self) -> tuple[Timed, ...]:
        """Those of a micro-batch, in all passes."""
        device, dtype, loop = accelerator(self.cluster.accelerator), self.plan.dtype, self.cluster.software.kernels
        return tuple(
            Timed(one, phase, count, duration(one, device, dtype, loop), computed_in(one, device, dtype))
            for block, count in model_blocks(self.model, self.plan)
            for kernel in block.kernels
            for phase in PhaseName
            for one in in_phase(kernel, phase)
        )

    def deciding(self, most: int = 3) -> list[tuple[Timed, float]]:
        """The kernels that take longest in all, with their share of all kernels' time."""
        whole = fsum(one.seconds for one in self.kernels)
        first = sorted(self.kernels, key=lambda one: -one.seconds)[:most]
        return [(one, one.seconds / whole) for one in first]

    def sources(self) -> dict[str, object]:
        """What times of kernels and collectives rest on, as shares of their sum.

        Collectives lie on lines through measured curves. `over_short_run`: how many times as long a kernel takes in a
        training loop of this software and site as in a short run from cold.
        """
        device = accelerator(self.cluster.accelerator)
        sums, distances, tables = dict.fromkeys(Source, 0.0), [], set[str]()
        for one in self.kernels:
            sums[one.known.source] += one.seconds
            tables |= {one.known.table} - {""}
            if one.known.source is not Source.ROOFLINE:
                distances.append((one.seconds, one.known.distance))
        parts = range(self.plan.outline.parts)
        cells = (each for part in parts for each in part_cells(self.model, self.plan, self.cluster, part))
        exposed_s = fsum(count * fsum(cell.waits.values()) for cell, count in cells)
        if exposed_s:
            sums[Source.INTERPOLATED] += exposed_s
            tables.add(f"nccl {self.cluster.fabric.name}")
        whole, known_s = fsum(sums.values()), fsum(seconds for seconds, _ in distances)
        mean = fsum(seconds * distance for seconds, distance in distances) / known_s if known_s else None
        shares: dict[str, object] = {f"{source.value}_share": seconds / whole for source, seconds in sums.items()}
        return shares | {
            "mean_distance": mean,
            "tables": sorted(tables),
            "deciding": [
                {
                    "kernel": str(one),
                    "share": share,
                    **asdict(one.known),
                    "source": one.known.source.value,
                    "over_short_run": one.known.seconds / duration(one.kernel, device, self.plan.dtype, COLD).seconds,
                }
                for one, share in self.deciding()
            ],
        }

    def energy_j(self, step_s: float) -> float | None:
        """Joules of one accelerator's board in a step, the mean over stages; None where it states no power limit."""
        device, plan = accelerator(self.cluster.accelerator), self.plan
        if not device.power_w:
            return None
        runs = plan.micro_batches / plan.pp
        again = {PhaseName.FORWARD: 2.0} if plan.recompute == "full" else {}
        made = [(one.kernel.work, runs * again.get(one.phase, 1.0) * one.seconds, one.dtype) for one in self.kernels]
        busy_s = fsum(seconds for _, seconds, _ in made)
        shrunk = min(1.0, step_s / busy_s)  # layers computed again only in part
        return energy_j([(work, seconds * shrunk, dtype) for work, seconds, dtype in made], step_s, device)
