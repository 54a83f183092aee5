"""AICB's computation description files: measured kernel times by section, and what AICB makes of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from simcore.errors import InputError
from simcore.library import table

Times = Mapping[str, int]
"""Nanoseconds by stage name."""

UNKNOWN = 1
"""What AICB writes, in ns, where it finds no time."""

_SECTION = re.compile(r"^(\w+):")
_FIGURE = re.compile(r"time_gpu_(avg|min):\s+(\d+(?:\.\d+)?)")
_MOST_US = 1e15  # in ns still a number of 64 bits
_LATENT = ("linear_q_lora", "q_column", "linear_kv_lora", "kv_column", "o_row")  # projections of latent attention
_INFERENCE = table(__file__, "inference.txt")


def sections(path: str | Path, option: str = "--comp_filepath") -> list[tuple[str, str, float]]:
    """Read (section, 'avg' or 'min', microseconds) in the order of a description file; InputError names `option`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InputError.at(option, f"cannot read '{path}': {reason}", expected="AICB's time file") from None
    figures, section = list[tuple[str, str, float]](), ""
    for line in text.splitlines():
        header = _SECTION.match(line)
        section = header[1] if header else section
        figures += ((section, name, float(figure)) for name, figure in (_FIGURE.findall(line) if section else ()))
    endless = next((section for section, _, time_us in figures if time_us > _MOST_US), "")
    if endless:
        raise InputError.at(option, f"'{path}': the time of '{endless}' is too long", expected=f"up to {_MOST_US:g} us")
    if not figures:
        expected = "sections 'name:' with lines 'time_gpu_avg: 12.3'"
        raise InputError.at(option, f"'{path}' holds no time", expected=expected, found=text[:40])
    return figures


def training_times(path: str | Path, *, recompute: bool = False) -> Times:
    """Times of a training profile: whole attention and MLP blocks, the optimizer's two, and every other section.

    The names decide: 'atten' and 'layernorm' add up to attention, 'mlp' and 'layernorm2' to the MLP; recompute doubles
    what is called flash attention. `param_time` is split into its minimum and its mean, which AICB takes for the
    gradients' forward and backward. The five projections of latent attention are 0 where the file lacks them.
    """
    blocks = {"attention": 0.0, "mlp": 0.0}
    gradients = {"min": 0.0, "avg": 0.0}
    latent = {f"attention_{name}": 0 for name in _LATENT}
    others: dict[str, int] = {}
    for section, name, time_us in sections(path):
        time_ns = time_us * 1000
        block = "attention" if "atten" in section or section == "layernorm" else ""
        block = block or ("mlp" if "mlp" in section or section == "layernorm2" else "")
        if section == "param_time":
            gradients[name] = time_ns
        elif name == "avg" and block:
            blocks[block] += time_ns * (2 if recompute and "atten" in section and "flash" in section else 1)
        elif name == "avg":
            others[section] = round(time_ns)
        if name == "avg" and section in latent:
            latent[section] = round(time_ns)
    directions = {f"{name}_{way}": round(time) for name, time in blocks.items() for way in ("forward", "backward")}
    grads = {"grad_forward": round(gradients["min"]), "grad_backward": round(gradients["avg"])}
    return directions | grads | others | latent


def averages(path: str | Path, words: Iterable[Sequence[str]]) -> Iterator[tuple[str, float]]:
    """What sections are times of, which the first of the words in a name says, and their means in microseconds."""
    for section, name, time_us in sections(path):
        what = next((what for word, what in words if word in section), "")
        if name == "avg" and what:
            yield what, time_us


def inference_times(path: str | Path) -> Times:
    """Times of an inference profile, added up by stage."""
    sums = defaultdict[str, float](float)
    for stage, time_us in averages(path, _INFERENCE):
        sums[stage] += time_us * 1000
    return {stage: round(time) for stage, time in sums.items() if round(time)}


def stage_time(times: Times, stage: str, direction: str) -> int:
    """AICB's time in ns of a stage of the model; the LM head ('final') is timed as attention."""
    if stage in times:
        return times[stage]
    alias = {"embedding": "Emb", "final": f"attention_{direction}"}.get(stage, f"{stage}_{direction}")
    return times.get(alias, UNKNOWN)


def module_time(times: Times, name: str, direction: str) -> int:
    """AICB's time in ns of a module: its own section if there is one, otherwise its stage's whole time."""
    exact = times.get(name, UNKNOWN)
    return exact if exact != UNKNOWN else stage_time(times, name.split("_")[0], direction)
