"""How long the parts of a training step take: from an accelerator's kernels or from AICB's measured time file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import fsum

from simcore.compute.accelerators import Accelerator
from simcore.generate.aicb.times import averages
from simcore.library import table
from simcore.model.layer import model_blocks
from simcore.model.plan import Plan
from simcore.model.rows import Timer, optimizer_ns
from simcore.model.shape import Model
from simcore.model.steps import Block, Kernel, Part, in_phase
from simcore.model.timing import LOOP, KernelTimer, Loop, duration
from simcore.workload.contents import Contents, Roof, Work
from simcore.workload.model import PhaseName

DEFAULT_GPU = "A100"

Parts = Mapping[Part, Sequence[Kernel]]


@dataclass(frozen=True, slots=True)
class Roofline(KernelTimer):
    """Times on an accelerator of kernels, and of the `parts` of a model under a plan.

    `ratios`: by how much longer parts took where they were measured.
    """

    device: Accelerator
    dtype: str
    parts: Parts
    loop: Loop = LOOP
    ratios: Mapping[Part, float] = field(default_factory=dict)

    def kernel_s(self, kernel: Kernel) -> float:
        """On the accelerator."""
        return duration(kernel, self.device, self.dtype, self.loop).seconds

    def time_ns(self, part: Part, kernels: Sequence[Kernel], phase: PhaseName) -> int:
        """As `Timer.time_ns`."""
        return round(KernelTimer.time_ns(self, part, kernels, phase) * self.ratios.get(part, 1.0))


def chosen_gpu(name: str | None, *, computed: bool = True) -> tuple[str, list[str]]:
    """The accelerator called `name`, or the usual one and what to say of it where it computes anything.

    The text "None" of AICB's scripts names none.
    """
    if name and name != "None":
        return name, []
    return DEFAULT_GPU, [f"no --gpu_type: computation times are those of an {DEFAULT_GPU}"] if computed else []


def roofline(model: Model, plan: Plan, device: Accelerator, loop: Loop = LOOP) -> Roofline:
    """Times of a model under a plan; sources of the rule in `simcore.compute`."""
    return Roofline(device, plan.dtype, parts_of(block for block, _ in model_blocks(model, plan)), loop)


def parts_of(some: Iterable[Block]) -> dict[Part, tuple[Kernel, ...]]:
    """The kernels of every part of a model: of each the first block that has it."""
    found: dict[Part, tuple[Kernel, ...]] = {}
    for block in some:
        parts = dict.fromkeys(kernel.part for kernel in block.kernels)
        found = {part: tuple(one for one in block.kernels if one.part is part) for part in parts} | found
    return found


@dataclass(frozen=True, slots=True)
class Measured:
    """AICB's measured times by part, the same for forward and both gradients; of the optimizer for any size."""

    times: Mapping[Part, int]

    def time_ns(self, part: Part, kernels: Sequence[Kernel], phase: PhaseName) -> int:
        """As `Timer.time_ns`; a part without weights has no gradient of any."""
        done = any(True for kernel in kernels for _ in in_phase(kernel, phase))
        return self.times.get(part, 0) if done else 0


_SECTIONS = table(__file__, "sections.txt")


def measured(path: str) -> Measured:
    """Read AICB's time file by its sections' names; InputError when it cannot be read."""
    times = defaultdict[Part, float](float)
    for part, time_us in averages(path, _SECTIONS):
        times[Part(part)] += time_us
    return Measured({part: round(time_us * 1000) for part, time_us in times.items()})


def rescaled(file: Measured, source: Roofline, source_elements: int, target: Roofline) -> Roofline:
    """Times of a file for another shape or accelerator, that of `target`.

    Those of the file are forward times, measured at the shape and on the accelerator that `source` is the roofline of,
    and of the optimizer step of `source_elements` parameters. Parts that it does not have stay as they are; gradients
    are as much slower as forward.
    """
    ratios: dict[Part, float] = {}
    for parts in _WRITTEN.values():
        measured_s = fsum(file.times.get(part, 0) for part in parts) / 1e9
        expected_s = fsum(source.phase_s(source.parts.get(part, ()), PhaseName.FORWARD) for part in parts)
        if measured_s and expected_s:
            ratios |= dict.fromkeys(parts, measured_s / expected_s)
    measured_ns, step_ns = file.times.get(Part.OPTIMIZER, 0), optimizer_ns(source, source_elements)
    if measured_ns and step_ns:
        ratios[Part.OPTIMIZER] = measured_ns / step_ns
    return replace(target, ratios=ratios)


_WRITTEN = {name: tuple(map(Part, parts)) for name, *parts in table(__file__, "written.txt")}


def profile(durations: Timer, parts: Parts, elements: int, about: str) -> str:
    """Forward times as one of AICB's time files, with what they are times of in its second line.

    AICB adds minimum and mean of `param_time`: the minimum is written as 0.
    """
    times = {
        name: sum(durations.time_ns(part, parts.get(part, ()), PhaseName.FORWARD) for part in written)
        for name, written in _WRITTEN.items()
    }
    lines = ["train_iter:1", f"# {about}"]
    for name, time_ns in times.items():
        if time_ns:
            lines += [f"{name}:", *(f"    time_gpu_{which}: {time_ns / 1000}" for which in ("max", "min", "avg"))]
    step_us = optimizer_ns(durations, elements) / 1000
    lines += ["param_time:", f"    time_gpu_max: {step_us}", "    time_gpu_min: 0", f"    time_gpu_avg: {step_us}"]
    return "\n".join([*lines, ""])


def with_work(contents: Contents, costs: Roofline, durations: Timer) -> Contents:
    """The contents with FLOPs and bytes of every part, and how long it takes by `durations`."""
    device = costs.device
    roof = Roof(device.name, costs.dtype, device.peak(costs.dtype), device.memory_bytes_per_s)
    phases, work = {row.phase for row in contents.compute}, list[Work]()
    for part, phase in product(Part, PhaseName):
        kernels = costs.parts.get(part, ())
        done = [one.work for kernel in kernels for one in in_phase(kernel, phase)]
        flops, moved = fsum(one.flops for one in done), fsum(one.moved_bytes(_STORED_BYTES) for one in done)
        if str(phase) in phases and moved:
            work.append(Work(part, str(phase), flops, moved, durations.time_ns(part, kernels, phase)))
    return replace(contents, work=tuple(work), roof=roof)


_STORED_BYTES = 2.0
