"""The options of a run: one description for the command line, Python, run.yaml and studies of sweeps.

A field says how its value is read, which is all the checking there is; `RunOptions.of` reads a whole set of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Self, TypeVar

from simcore.errors import InputError, closest, wrong

MOST_COUNT = 10**9
LEAST_FACTOR, MOST_FACTOR = 1e-12, 1e30  # no product of a few factors leaves the range of a float
MOST_SEED = 2**62
ROWS, TRACES = "text workloads", "traces"

Number = TypeVar("Number", int, float)
Reader = Callable[[Any], Any]
"""A value as it was given -> what it means; ValueError says what is expected."""


def whole(value: Any, least: int, most: int | None = None) -> int:
    """A whole number in a range."""
    text = str(value)
    digits = text.isascii() and text.isdecimal() and not isinstance(value, bool)
    number = int(text.lstrip("0")[:20] or 0) if digits else -1  # more digits are as much too many
    if isinstance(value, float) and value.is_integer():
        number = int(value)
    return _within(number, least, most, MOST_SEED, "a whole number")


def number(value: Any, least: float, most: float | None = None) -> float:
    """A number in a range, which is neither infinite nor NaN."""
    try:
        text = str(value)
        number = math.nan if isinstance(value, bool) or not text.isascii() or "_" in text else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    return _within(number, least, most, MOST_FACTOR, "a number")


def _within(number: Number, least: float, most: float | None, usual: float, what: str) -> Number:
    """The number; ValueError for one outside of a range, whose end is told where there is one or it is passed."""
    if least <= number <= (usual if most is None else most):
        return number
    end = usual if most is None and number > usual else most
    if 0 < least < 1 and not 0 < number < least:
        raise ValueError(f"{what} above 0" + ("" if end is None else f", at most {end:,}"))
    raise ValueError(f"{what} of at least {least:,}" if end is None else f"{what} from {least:,} to {end:,}")


count = partial(whole, least=1, most=MOST_COUNT)
seed = partial(whole, least=0)
factor = partial(number, least=LEAST_FACTOR)  # above 0
share = partial(number, least=0, most=1)


def flag(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")  # noqa: TRY004 - as every reader
    return value


def text(value: Any) -> str:
    """A text; None is none."""
    if not isinstance(value, str | None):
        raise ValueError("a text")  # noqa: TRY004 - as every reader
    return value or ""


def path(value: Any) -> str:
    """A text, or the path of a file."""
    return text(str(value) if isinstance(value, PathLike) else value)


def groups(value: Any) -> str:
    """A path; "empty" is none, as it is by default in ASTRA-sim 2.x."""
    return path(value) if value != "empty" else ""


def texts(value: Any) -> tuple[str, ...]:
    """One text or several."""
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple) or not all(isinstance(item, str) for item in several):
        raise ValueError("a text, or a list of texts")
    return tuple(several)


def word(value: Any, known: tuple[str, ...], none: str | None) -> str | None:
    """One of the known words; None is none."""
    if value not in (None, none, *known):
        raise ValueError(" or ".join(known))
    return value or none


dialect = partial(word, known=("astra-sim", "simai"), none=None)
exact = partial(word, known=("messages",), none="")


def _option(group: str, default: Any, read: Reader, help_text: str, metavar: str = "", **marks: object) -> Any:
    """A field; marks: `told` in the report (it changes figures), taken by `wafer` workloads, `hidden` from commands;
    `only` names the kind of workload that it changes something for.
    """
    about = {"read": read, "group": group, "help": help_text, "metavar": metavar, **marks}
    return field(default=default, metadata=about)


_input, _timing, _noise, _output = (partial(_option, group) for group in ("Input", "Timing", "Noise", "Output"))
_closed = partial(_option, "SimAI's closed forms (--profile simai-1.6 or simai-busbw)")


class Options:
    """A dataclass of options, each with how it is read and what is said of it."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Read and check options by name; InputError names the one that is wrong as it is on the command line."""
        return cls(**{name: cls.read(name, value) for name, value in given.items()})

    @classmethod
    def read(cls, name: str, value: Any) -> Any:
        """What a value of one option means."""
        known = {each.name: each for each in fields(cls)}
        if name not in known:
            raise InputError.at(spelled(name), "there is no such option", expected=closest(name, known))
        try:
            return known[name].metadata["read"](value)
        except ValueError as error:
            raise wrong(spelled(name), str(error), value) from error

    @classmethod
    def named(cls, **marks: object) -> list[Field[Any]]:
        """The fields with such metadata, in order."""
        return [each for each in fields(cls) if all(each.metadata.get(key) == value for key, value in marks.items())]

    def changed(self) -> Iterator[tuple[Field[Any], Any]]:
        """The options that are not their defaults."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.default is not MISSING and value != each.default:
                yield each, value


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(Options):
    """What a run may be given beside workload, topology and system; docs/commands.md lists them with their help.

    Factors are above 0, counts at least 1. InputError says what an option takes when it is given something else.
    """

    profile: str = _timing("native", text, "Timing rules; simcore list profiles.", "P")
    network: str = _timing(
        "", text, "congestion-free, congested, fair or queued; default: the profile's.", "M", wafer=True
    )
    iterations: int = _input(1, count, "Training iterations; traces are run once.", "N", only=ROWS)
    dialect: str | None = _input(
        None, dialect, "astra-sim or simai; default: what a text's header tells.", "NAME", told=True, only=ROWS
    )
    comm_groups: str = _input(
        "", groups, "Communicators of traces (ASTRA-sim 2.x JSON); default: PREFIX.groups.json.", "FILE", only=TRACES
    )
    remote_memory: str = _input("", path, "Remote memory (ASTRA-sim 2.x JSON).", "FILE", only=TRACES)
    npu: str = _input("", text, "Accelerator for computed durations; simcore list npus.", "NAME", told=True, wafer=True)
    schedule: str = _timing(
        "", text, "Pipeline: gpipe, 1f1b, interleaved, zb-h1, zb-v or dualpipe.", "NAME", told=True, only=ROWS
    )
    queues_per_dim: int = _timing(1, count, "Queues of every dimension.", "N", told=True)
    compute_scale: float = _timing(1.0, factor, "Factor on compute times.", "X", told=True, wafer=True)
    comm_scale: float = _timing(1.0, factor, "Factor on message sizes.", "X", told=True)
    injection_scale: float = _timing(1.0, factor, "Factor on endpoint delays.", "X", told=True)
    rendezvous: bool = _timing(False, flag, "Every message asks before it is sent.", told=True)
    exact: str = _timing(
        "", exact, "messages: every message of every NPU, the slow check of all else.", "messages", told=True
    )
    no_fold: bool = _timing(False, flag, "One process for every NPU; the answer is the same.", wafer=True)
    straggler: tuple[str, ...] = _noise(
        (), texts, "Slow NPUs down: 0-3,7=1.5 or dp=3:1.2.", "RANKS=FACTOR", told=True, wafer=True
    )
    jitter: tuple[str, ...] = _noise(
        (), texts, "compute=lognormal:0.02, links=normal:0.01", "WHAT=KIND:WIDTH", told=True
    )
    seed: int | None = _noise(
        None, lambda value: None if value is None else seed(value), "Of jitter and random places (0).", "N", told=True
    )
    runs: int = _noise(1, count, "With jitter: so many seeds, and mean, p5, p95 of their times.", "N")
    fault: tuple[str, ...] = _noise(
        (), texts, "'link 3-4 x0.5 @ 1ms-2ms' or 'link 3-4 down @ 1ms-'", "FAULT", told=True
    )
    power: str = _output(
        "", text, "Watts over time, with such boards; simcore list npus.", "NAME", told=True, wafer=True
    )
    what_would_help: bool = _output(
        False, flag, "Run again with faster NPUs and links: what each would save.", wafer=True
    )
    explain_profile: bool = _output(False, flag, "Run again without each rule of the profile: what each adds.")
    link_times: bool = _output(
        False, flag, "Keep when every link is occupied, which timelines show.", wafer=True, hidden=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimaiOptions(Options):
    """What SimAI-Analytical takes beside a workload; docs/simai.md.

    Bandwidths are SimAI's GB/s (2^30 bytes per second). An overlap is the share of that group's communication hidden
    behind compute; of the pipeline's transfers all is hidden by default. `gpus` 0 takes the header's `all_gpus`.
    """

    profiles: ClassVar = ("simai-1.6", "simai-busbw")

    gpus: int = _closed(0, count, "GPUs of the job; default: the header's all_gpus.", "N")
    gpus_per_server: int = _closed(8, count, "GPUs of a server (8).", "N")
    nics_per_server: int = _closed(8, count, "NICs of a server (8).", "N")
    nvlink_bw: float | None = _closed(None, factor, "NVLink bandwidth of a GPU, GiB/s.", "X")
    nic_bw: float | None = _closed(None, factor, "Bandwidth of a NIC, GiB/s.", "X")
    gpu_type: str = _closed("", text, "NVLink bandwidth by name.", "NAME")
    nic_type: str = _closed("", text, "NIC bandwidth by name.", "NAME")
    dp_overlap: float = _closed(0.0, share, "Share of data-parallel communication hidden (0).", "X")
    tp_overlap: float = _closed(0.0, share, "Share of tensor-parallel communication hidden (0).", "X")
    ep_overlap: float = _closed(0.0, share, "Share of expert-parallel communication hidden (0).", "X")
    pp_overlap: float = _closed(1.0, share, "Share of pipeline transfers hidden (1).", "X")
    busbw: str = _closed("", path, "Bus bandwidths by group and collective (simai-busbw).", "FILE")


def spelled(name: str) -> str:
    """An option as it is typed.

    >>> spelled("queues_per_dim")
    '--queues-per-dim'
    """
    return f"--{name.replace('_', '-')}"
