"""`simcore generate megatron|deepspeed|deepseek|inference`: workloads of language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from simcore.cli.command import emit, warn
from simcore.cli.kinds import Target, forced
from simcore.cli.table import options_of
from simcore.errors import InputError
from simcore.files import write_text
from simcore.generate.aicb.files import aicb_inference_step, aicb_step, file_name, inference_file_name
from simcore.generate.aicb.inference import InferenceOptions, told_name
from simcore.generate.aicb.options import FRAMES
from simcore.generate.build import Asked
from simcore.generate.inference import inference_step, inference_traces
from simcore.generate.made import Made
from simcore.generate.step import contents_of_step, corrected_step, make_step, times_of, write_traces
from simcore.report.timelines.selection import parse_ranks
from simcore.report.workload import write_summary
from simcore.workload.contents import Contents

AICB = "aicb-2.1"
SCHEMA = "simcore.generate/1"


@dataclass(frozen=True, slots=True)
class _Output:
    """Where and how a workload is written, as options say."""

    compat: str | None
    form: str
    output: str | None
    summary: str | None
    ranks: str | None

    @classmethod
    def taken(cls, values: dict[str, Any]) -> _Output:
        """Those of a command's values, which lose them; InputError for one stage of what has all."""
        taken = cls(**{field.name: values.pop(field.name) for field in fields(cls)})
        if taken.form == "chakra" and values["pp_rank"] not in (None, -1):
            message = "execution traces are of ranks of every stage"
            raise InputError.at("--pp_rank", message, expected="--ranks", found=str(values["pp_rank"]))
        return taken

    def named(self, name: Callable[[], str]) -> _Output:
        """With a file of this name where only a folder was given; InputError for a file that cannot be written."""
        one_file, output = self.compat or self.form != "chakra", self.output
        if self.ranks and one_file:
            raise InputError.at("--ranks", "only execution traces are written per rank", expected="--format chakra")
        if output and (output.endswith("/") or Path(output).is_dir()):
            Path(output).mkdir(parents=True, exist_ok=True)
            output = str(Path(output) / name())
        if output and one_file:
            Target().convert(output, None, None)
        return replace(self, output=output)

    def finish(self, made: Made) -> None:
        """Write or print the workload; with --json the document goes to standard output."""
        self.summarise(made.contents)
        for warning in made.warnings:
            warn(warning)
        if self.output is not None:
            write_text(self.output, made.text)
        emit({"schema": SCHEMA} | made.document, "" if self.output else made.text)

    def summarise(self, contents: Callable[[], Contents] | None) -> None:
        """Write a summary where one is wanted."""
        if self.summary and contents is None:
            raise InputError.at("--summary", "AICB's operation lists are not summarised", expected="--format text")
        if self.summary and contents:
            write_summary(contents(), self.summary)

    def traces(self, write: Callable[[Path, Sequence[int]], tuple[list[Path], tuple[str, ...]]]) -> None:
        """Write execution traces under a prefix and say how many."""
        if self.output is None:
            raise InputError.at("--output", "execution traces are files", expected="--output PREFIX", found="none")
        paths, warnings = write(Path(self.output), tuple(parse_ranks(self.ranks)) if self.ranks else ())
        for warning in warnings:
            warn(warning)
        document = {"schema": SCHEMA, "groups": str(paths[0]), "traces": [str(path) for path in paths[1:]]}
        emit(document, f"{len(paths) - 1} traces {self.output}.RANK.et, groups in {paths[0]}")


def _popped(values: dict[str, Any], section: str) -> dict[str, Any]:
    """The values of the options of a section, which the others lose."""
    return {str(one.name): values.pop(str(one.name)) for one in options_of(section)}


def _tell_ignored(values: dict[str, Any]) -> None:
    """Warn of what was given and AICB, whose scripts have it, does nothing with either."""
    if given := [name for name, value in values.items() if value]:
        warn(f"without effect: {', '.join('--' + name for name in given)}")


def _training(name: str, **values: Any) -> None:
    """One training step of a framework."""
    _tell_ignored(_popped(values, "aicb without effect"))
    output, extra = _Output.taken(values), _popped(values, "corrected")
    size, profile, _ = (values.pop(key) for key in ("model_size", "profile_out", "frame"))
    given = {name: value for name, value in (values | extra).items() if value is not None}
    asked = Asked.of(FRAMES[name], size, given)
    options = asked.options
    model = options.model_name or (Path(extra["model"]).stem if extra["model"] else None)
    output = output.named(lambda: file_name(replace(options, model_name=model), output.form))
    if output.compat:
        _only_corrected(extra | {"profile_out": profile})
        output.finish(aicb_step(options, output.form))
        return
    if output.form == "chakra":
        step = make_step(asked)
        output.summarise(lambda: contents_of_step(step))
        _write_times(profile, times_of(step))
        output.traces(partial(write_traces, step, asked, force=forced()))
        return
    made = corrected_step(asked, output.form)
    _write_times(profile, made.profile)
    output.finish(made)


def _write_times(path: str | None, times: str) -> None:
    """The times of a step where a file of them is wanted."""
    if path is not None:
        write_text(path, times)


megatron = partial(_training, "megatron")
deepspeed = partial(_training, "deepspeed")
deepseek = partial(_training, "deepseek")


def _only_corrected(extra: dict[str, Any]) -> None:
    """Refuse under --compat what AICB does not have."""
    given = [name for name, value in extra.items() if value is not None and name != "overlap_grad_reduce"]
    if given:
        message = f"AICB has no such option; leave it out or --compat {AICB}"
        raise InputError.at(f"--{given[0]}", message, found=given[0])


def inference(model: str, config: str | None, **values: Any) -> None:
    """One prefill or decode step of a model."""
    output, profiled = _Output.taken(values), values.pop("aiob_enable")
    aicb, compat = _of_aicb(model, config, values), output.compat and config
    output = output.named(lambda: inference_file_name(aicb, told_name(aicb) if compat else model, output.form))
    # Its models have experts, its files our --output.
    _tell_ignored({name: values.pop(name) for name in ("moe_enable", "aiob_forward_loops", "result_dir")})
    if profiled and not (output.compat and values["comp_filepath"]):
        found = "--aiob_enable without a time file" if output.compat else "--aiob_enable without --compat"
        raise InputError.at("--comp_filepath", "AICB would profile on a GPU here", expected="a time file", found=found)
    if output.compat:
        _only_corrected({"dtype": values["dtype"]})
        if output.form != "text":
            message = f"AICB has no {output.form} of inference"
            raise InputError.at("--format", message, expected="text", found=output.form)
        if config is None:
            raise InputError.at("CONFIG", "AICB needs a configuration file", expected="a JSON file", found="none")
        output.finish(aicb_inference_step(aicb))
        return
    made = inference_step(model, config, output.form, **values)
    if output.form != "chakra":
        output.finish(made)
        return
    output.summarise(made.contents)
    output.traces(partial(inference_traces, model, config, force=forced(), **values))


def _of_aicb(model: str, config: str | None, values: dict[str, Any]) -> InferenceOptions:
    """What AICB knows of an inference step."""
    names = {field.name for field in fields(InferenceOptions)}
    return InferenceOptions(model, config or "", **{name: values[name] for name in names & values.keys()})
