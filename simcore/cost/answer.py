"""The answer of `simcore predict`: time, its parts, rates, memory and what would fit; kernels on which it all rests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from math import fsum

from simcore.compute.kernel import Attention, Duration, GroupedProduct, Product, Source
from simcore.compute.kernel import Kernel as Work
from simcore.compute.power import energy_j
from simcore.cost.margins import Margin, interval, kind_of, margin_of
from simcore.cost.played import engine_ns, network_ns
from simcore.cost.predict import Prediction, part_cells, predict
from simcore.cost.step import cut_of, seats
from simcore.cost.systems import Cluster
from simcore.errors import InputError
from simcore.library import table
from simcore.model.effects import idle
from simcore.model.layer import model_blocks
from simcore.model.memory import PEAK_MARGIN, Memory, peak, stage_memory
from simcore.model.plan import OFFLOADED, Plan, check, seen_by
from simcore.model.shape import Model
from simcore.model.steps import Block, Kernel, in_phase
from simcore.model.timing import COLD, computed_in, duration
from simcore.workload.model import PhaseName

PARTS = dict(table(__file__, "parts.txt"))
"""Parts of a prediction -> their names in the document."""


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
class Answer:
    """The training step of a `model` under a `plan` on a `cluster`; `simcore.predict` gives it."""

    model: Model
    plan: Plan
    cluster: Cluster

    @cached_property
    def prediction(self) -> Prediction:
        """The step and its parts."""
        return predict(self.model, self.plan, self.cluster)

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.prediction.step_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """The seconds, from and to, in which nine of ten measured steps of such jobs would lie."""
        return interval(self.step_s, self.margin.share)

    @property
    def margin(self) -> Margin:
        """How far like jobs were missed."""
        return margin_of(kind_of(self.model, self.plan, self.cluster))

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second on each accelerator."""
        plan = self.plan
        return plan.global_batch * plan.seq / self.step_s / plan.world_size

    @property
    def mfu(self) -> float:
        """The model's FLOPs, nothing computed again, over the dense peak of the products' type.

        Causal attention counts the tokens a query sees.
        """
        device, plan = self.cluster.device, self.plan
        return model_flops(self.model, plan) / (self.step_s * plan.world_size * device.peak(plan.dtype))

    @cached_property
    def memory(self) -> tuple[Memory, ...]:
        """The peak of every stage."""
        return tuple(stage_memory(self.model, self.plan, stage) for stage in range(self.plan.pp))

    def run_s(self) -> float:
        """The same step run by the native engine."""
        return engine_ns(self.model, self.plan, self.cluster) * 1e-9

    def network_s(self) -> float | None:
        """The same step on the links of the cluster's topology, where it has one of this size."""
        found_ns = network_ns(self.model, self.plan, self.cluster)
        return None if found_ns is None else found_ns * 1e-9

    @cached_property
    def kernels(self) -> tuple[Timed, ...]:
        """Those of a micro-batch, in all passes."""
        device, dtype, loop = self.cluster.device, self.plan.dtype, self.cluster.software.kernels
        counts = Counter[tuple[Kernel, PhaseName]]()  # equal ones of layers of several kinds are one
        for block, count in model_blocks(self.model, self.plan):
            for kernel, phase in product(block.kernels, PhaseName):
                counts.update({(one, phase): count for one in in_phase(kernel, phase)})
        return tuple(
            Timed(one, phase, count, duration(one, device, dtype, loop), computed_in(one, device, dtype))
            for (one, phase), count in counts.items()
        )

    def deciding(self, most: int = 3) -> list[tuple[Timed, float]]:
        """The `most` kernels that take longest in all, with their share of all kernels' time."""
        whole = fsum(one.seconds for one in self.kernels)
        first = sorted(self.kernels, key=lambda one: -one.seconds)[:most]
        return [(one, one.seconds / whole) for one in first]

    def sources(self) -> dict[str, object]:
        """What times of kernels and collectives rest on, as shares of their sum.

        Collectives lie on lines through measured curves. `over_short_run`: how many times as long a kernel takes in a
        training loop of this software and site as in a short run from cold.
        """
        device = self.cluster.device
        sums, distances, tables = dict.fromkeys(Source, 0.0), [], set[str]()
        for one in self.kernels:
            sums[one.known.source] += one.seconds
            tables |= {one.known.table} - {""}
            if one.known.source is not Source.ROOFLINE:
                distances.append((one.seconds, one.known.distance))
        cut, seen = cut_of(self.plan), enumerate(seats(self.plan, self.cluster))
        cells = (each for part, there in seen for each in part_cells(self.model, cut, there, part))
        if exposed_s := fsum(count * fsum(cell.waits.values()) for cell, count in cells):
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

    def power(self) -> dict[str, float] | None:
        """Watts and joules of a board in a step, the mean over stages; None where it states no power limit."""
        device, plan = self.cluster.device, self.plan
        if not device.power_w:
            return None
        runs = plan.micro_batches / plan.pp
        again = {PhaseName.FORWARD: 2.0} if plan.recompute == "full" else {}
        made = [(one.kernel.work, runs * again.get(one.phase, 1.0) * one.seconds, one.dtype) for one in self.kernels]
        busy_s = fsum(seconds for _, seconds, _ in made)
        shrunk = min(1.0, self.step_s / busy_s)  # layers computed again only in part
        drawn_j = energy_j([(work, seconds * shrunk, dtype) for work, seconds, dtype in made], self.step_s, device)
        watts = drawn_j / self.step_s
        return {"board_w": watts, "board_j": drawn_j, "tokens_per_j": self.tokens_per_s / watts}

    def to_dict(self) -> dict[str, object]:
        """The document of `simcore predict --json`."""
        low, high = self.interval_s
        return {
            "schema": "simcore.prediction/1",
            "step_s": self.step_s,
            "interval_s": [low, high],
            "parts": {PARTS[name]: seconds for name, seconds in self.prediction.parts.items()},
            "tokens_per_s_per_accelerator": self.tokens_per_s,
            "mfu": self.mfu,
            "memory": [
                {"stage": stage, "peak_bytes": memory.total, "parts": memory._asdict()}
                for stage, memory in enumerate(self.memory)
            ],
            "capacity_bytes": self.cluster.memory_bytes,
            "peak_margin": PEAK_MARGIN,
            "sources": self.sources(),
            "power": self.power(),
        }


_seen_alone = seen_by("seq", "encoder_seq", "pad_vocab_to", "lora_rank", "lora_modules", "frozen")


def model_flops(model: Model, plan: Plan) -> float:
    """FLOPs of a step that the model needs: products and attention, forward and both gradients."""
    forward = fsum(count * _flops(block) for block, count in model_blocks(model, _seen_alone(plan)))
    return plan.global_batch * forward


def _flops(block: Block) -> float:
    """Forward and for both gradients, each as much; frozen weights have none."""
    return fsum(kernel.work.flops * (3 if kernel.trained else 2) for kernel in block.kernels)


def remedies(model: Model, plan: Plan, cluster: Cluster) -> list[tuple[str, int, float]]:
    """Option, peak bytes and step seconds of every single change with which the plan fits, the fastest first."""
    fitting = []
    for option, other in _changes(model, plan):
        try:
            check(model, other)
            size = peak(model, other).total
        except InputError:
            continue
        if size <= cluster.memory_bytes and not any(idle(model, other, ["zero"])):
            unsaid = plan.global_batch == plan.usual_batch != other.usual_batch  # the batch may have been left out
            said = f"{option} --global-batch {plan.global_batch}" if unsaid else option
            fitting.append((said, size, predict(model, other, cluster).step_s))
    return sorted(fitting, key=lambda one: one[2])


def _changes(model: Model, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans on as many accelerators that need less."""
    yield from ((f"--zero {zero}", replace(plan, zero=zero)) for zero in range(plan.zero + 1, 4))
    if plan.recompute != "full":
        yield from _computed_again(model, plan)
    for what in OFFLOADED:
        if what not in plan.offload:
            yield f"--offload {what}", replace(plan, offload=(*plan.offload, what))
    if plan.tp > 1 and not plan.sequence_parallel:
        yield "--sequence-parallel", replace(plan, sequence_parallel=True)
    yield f"--ep {2 * plan.ep}", replace(plan, ep=2 * plan.ep)
    for name in ("tp", "pp", "cp") if plan.dp % 2 == 0 else ():  # what replicas were
        degree = 2 * getattr(plan, name)
        shares = plan.sequence_parallel or (name == "tp" and plan.tp == 1 and model.experts is not None)
        yield f"--{name} {degree} --dp {plan.dp // 2}", plan.but(**{name: degree}, sequence_parallel=shares)
    if plan.micro_batch > 1:
        yield f"--micro-batch {plan.micro_batch // 2}", replace(plan, micro_batch=plan.micro_batch // 2)


def _computed_again(model: Model, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Modules, or layers of every part of the model: powers of two, and all."""
    if plan.recompute == "none" and not plan.fused_attention:
        yield "--recompute selective", replace(plan, recompute="selective")
    deepest = max(len(plan.layers(model, part)) for part in range(plan.outline.parts))
    for layers in sorted({*(1 << power for power in range(deepest.bit_length())), deepest}):
        some = replace(plan, recompute="full", recompute_layers=layers)
        yield f"--recompute full --recompute-layers {layers}", some
