"""AICB's time files for other shapes and accelerators."""

import pytest

from simcore.cli import main
from simcore.compute.accelerators import accelerator
from simcore.errors import InputError
from simcore.generate.durations import measured, profile, rescaled, roofline
from simcore.model.plan import Plan
from simcore.model.presets import model
from simcore.model.rows import optimizer_ns
from simcore.workload.model import PhaseName

PLAN = Plan(8, 4096, global_batch=8)
ELEMENTS = 8_000_000_000
NAMES = ("llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite")


def of(name, plan, device):
    return roofline(model(name), plan, accelerator(device))


@pytest.fixture
def file(tmp_path):
    def write(durations, factor=1):
        text = profile(durations, durations.parts, ELEMENTS, "test")
        lines = [
            f"{line.rpartition(' ')[0]} {float(line.split()[-1]) * factor:.3f}" if "time_gpu" in line else line
            for line in text.splitlines()
        ]
        (tmp_path / "times.txt").write_text("\n".join(lines))
        return measured(str(tmp_path / "times.txt"))

    return write


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factor", [1, 3])
def test_times_that_are_the_roofline_times_a_factor_rescale_to_the_roofline_times_it(file, name, factor):
    source = of(name, PLAN, "A100")
    target = of(name, Plan(8, 2048, tp=2, global_batch=8, sequence_parallel=True, expert_tp=2), "H100")
    times = rescaled(file(source, factor), source, ELEMENTS, target)
    for part, kernels in target.parts.items():
        for phase in PhaseName:
            expected = factor * target.time_ns(part, kernels, phase)
            assert times.time_ns(part, kernels, phase) == pytest.approx(expected, rel=1e-4, abs=5)
    assert optimizer_ns(times, 1000) == pytest.approx(factor * optimizer_ns(target, 1000), rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_at_the_measured_shape_forward_times_are_those_of_the_file(file, name):
    """Of every section of the file; a section may hold several parts."""
    read = file(of(name, PLAN, "A100"), 1.7)
    here = of(name, PLAN, "A100")
    times = rescaled(read, here, ELEMENTS, here)
    forward = sum(times.time_ns(part, kernels, PhaseName.FORWARD) for part, kernels in here.parts.items())
    forward += optimizer_ns(times, ELEMENTS)
    assert forward == pytest.approx(sum(read.times.values()), rel=1e-6, abs=20)


def test_a_written_profile_rescales_on_the_command_line(tmp_path):
    step = ("generate", "megatron", "--model", "llama-3-8b", "--world_size", "8", "--global_batch", "8")
    spec, times = str(tmp_path / "spec.yaml"), str(tmp_path / "times.txt")
    assert main([*step, "--gpu_type", "A100", "--format", "spec", "-o", spec, "--profile_out", times]) == 0
    plain, made = tmp_path / "plain.txt", tmp_path / "made.txt"
    assert main([*step, "--gpu_type", "H100", "-o", str(plain)]) == 0
    rescale = ("--comp_filepath", times, "--rescale_from", spec)
    assert main([*step, "--gpu_type", "H100", *rescale, "-o", str(made)]) == 0
    pairs = zip(plain.read_text().split(), made.read_text().split(), strict=True)
    assert all(a == b or abs(int(a) - int(b)) <= 2 + int(a) // 10**5 for a, b in pairs)
    assert main([*step, "--rescale_from", spec]) == 2


def test_a_file_without_times_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("train_iter:1\n")
    with pytest.raises(InputError, match="holds no time"):
        measured(str(tmp_path / "empty.txt"))
