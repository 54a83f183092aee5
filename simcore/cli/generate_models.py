"""`simcore generate megatron|deepspeed|deepseek|inference`: workloads of language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simcore.cli.command import SUMMARY, Command, Target, emit, forced, option, warn
from simcore.cli.numbers import Finite
from simcore.cli.options import options_of
from simcore.errors import InputError
from simcore.files import write_text
from simcore.generate.aicb.options import FRAMES, Options

if TYPE_CHECKING:
    from simcore.generate.aicb.inference import InferenceOptions
    from simcore.generate.build import Asked
    from simcore.generate.made import Made
    from simcore.workload.contents import Contents

AICB = "aicb-2.1"
SCHEMA = "simcore.generate/1"


class Spelling(Command):
    """A command whose long options are written with underscores or hyphens, in full or as a unique beginning."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's, after every option got its declared spelling."""
        known = {name: str(parameter.name) for parameter in self.params for name in parameter.opts}
        return super().parse_args(ctx, [_spelled(word, known) for word in args])


def _spelled(word: str, known: dict[str, str]) -> str:
    """The declared form of an option; `known` tells which parameter each sets; what begins none or several stays."""
    name, equals, value = word.partition("=")
    if not name.startswith("--") or len(name) < 4:
        return word
    plain = "--" + name[2:].replace("-", "_")
    matches = [plain] if plain in known else [name for name in known if name.startswith(plain)]
    one = len({known[name] for name in matches}) == 1
    return matches[0] + equals + value if one else word


def _aicb_options() -> list[click.Option]:
    """AICB's options, with its defaults; what is not given is None, so that a preset can fill it."""
    defaults = {field.name: field.default for field in fields(Options)}
    made = options_of("generate aicb")
    for one in made:
        default = defaults.get(str(one.name))
        one.help = f"{one.help}" + ("" if default in (None, False) else f" [default: {default}]")
    return made


def _without_effect(section: str) -> list[click.Option]:
    """Options that AICB reads and never uses; the help is silent about them."""
    made = options_of(section)
    for one in made:
        one.hidden = True
    return made


def _output_options(*formats: str) -> list[click.Option]:
    """Where and how a workload is written."""
    form = {"type": click.Choice(formats)}
    return options_of("generate output", form=form, output=Target(prefix=True), summary=SUMMARY)


@dataclass(frozen=True, slots=True)
class _Output:
    """Where and how a workload is written: the options of `_output_options`."""

    compat: str | None
    form: str
    output: str | None
    summary: str | None
    ranks: str | None

    @property
    def is_folder(self) -> bool:
        """Whether only the folder of the file is given."""
        return self.output is not None and (self.output.endswith("/") or Path(self.output).is_dir())

    def named(self, name: Callable[[], str]) -> _Output:
        """With a file of this name where only a folder was given."""
        if not self.is_folder:
            return self
        folder = Path(str(self.output))
        folder.mkdir(parents=True, exist_ok=True)
        made = replace(self, output=str(folder / name()))
        made.check()
        return made

    def check(self) -> None:
        """InputError for a file that cannot be written."""
        if self.output and (self.compat or self.form != "chakra"):
            Target().convert(self.output, None, None)

    @classmethod
    def taken(cls, values: dict[str, Any]) -> _Output:
        """Those of a command's values, which lose them; InputError for what does not go together or cannot be."""
        made = cls(**{field.name: values.pop(field.name) for field in fields(cls)})
        if made.ranks and (made.compat or made.form != "chakra"):
            raise InputError.at("--ranks", "only execution traces are written per rank", expected="--format chakra")
        if not made.is_folder:
            made.check()
        return made

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
        if not self.summary:
            return
        from simcore.report.workload import write_summary

        if contents is None:
            raise InputError.at("--summary", "AICB's operation lists are not summarised", expected="--format text")
        write_summary(contents(), self.summary)

    def traces(self, write: Callable[[Path, Sequence[int]], tuple[list[Path], tuple[str, ...]]]) -> None:
        """Write execution traces under a prefix and say how many."""
        from simcore.report.selection import parse_ranks

        if self.output is None:
            raise InputError.at("--output", "execution traces are files", expected="--output PREFIX", found="none")
        paths, warnings = write(Path(self.output), tuple(parse_ranks(self.ranks)) if self.ranks else ())
        for warning in warnings:
            warn(warning)
        document = {"schema": SCHEMA, "groups": str(paths[0]), "traces": [str(path) for path in paths[1:]]}
        emit(document, f"{len(paths) - 1} traces {self.output}.RANK.et, groups in {paths[0]}")


def _options(frame: str, size: str | None, values: dict[str, Any]) -> Options:
    """AICB's options: what is given, else the preset's, else AICB's default."""
    from simcore.generate.aicb.presets import preset

    chosen: dict[str, Any] = dict(preset(frame, size)) if size else {}
    chosen |= {name: value for name, value in values.items() if value is not None}
    return Options(frame=frame, **chosen)


SIZES = {"megatron": "13", "deepspeed": "13", "deepseek": "16 --enable_sequence_parallel"}
TRAINING_HELP = """One training step of {frame}.

Options have AICB's names, with underscores or hyphens, in full or as a unique beginning.

\b
simcore generate {name} --model llama-3-8b --world_size 64 --global_batch 64 --gpu_type H100 -o step.txt
simcore generate {name} -m {size} --world_size 8 --global_batch 8 --format chakra -o w
"""


def _training(name: str) -> click.Command:
    """The command of a training framework."""
    frame = FRAMES[name]

    ignorable = _without_effect("generate aicb without effect")
    corrected = options_of("generate corrected", moe_expert_capacity_factor=Finite(0, min_open=True))
    written = _output_options("text", "csv", "chakra", "spec")

    @click.command(name, cls=Spelling, params=[*_aicb_options(), *ignorable, *corrected, *written])
    @option("--frame", type=click.Choice([frame]), hidden=True)
    @option("--profile_out", type=Target(), metavar="FILE", help="Also write the times as AICB's time file.")
    def command(**values: Any) -> None:
        ignored = [str(one.name) for one in ignorable if values.pop(str(one.name))]
        if ignored:
            warn(f"without effect: {', '.join('--' + name for name in ignored)}")
        values.pop("frame")
        output = _Output.taken(values)
        extra = {str(one.name): values.pop(str(one.name)) for one in corrected}
        size, profile = (values.pop(key) for key in ("model_size", "profile_out"))
        options = _options(frame, size, values)
        output = output.named(lambda: _aicb_name(options, extra["model"], output.form))
        if output.compat:
            from simcore.generate.aicb.files import aicb_step

            _only_corrected(extra | {"profile_out": profile})
            output.finish(aicb_step(options, output.form))
            return
        from simcore.generate.build import Asked, Extra
        from simcore.generate.step import corrected_step

        given = {key for key, value in (values | extra).items() if value is not None}
        asked = Asked(options, Extra(**extra), given, size)
        if output.form == "chakra":
            _write_traces(asked, output)
            return
        made = corrected_step(asked, output.form)
        if profile is not None and made.profile:
            write_text(profile, made.profile)
        output.finish(made)

    command.help = TRAINING_HELP.format(frame=frame, name=name, size=SIZES[name])
    return command


def _aicb_name(options: Options, model: str | None, form: str) -> str:
    """AICB's name of the file; a model of ours is called by its own."""
    from simcore.generate.aicb.files import file_name

    named = Path(model).stem if model else None
    return file_name(replace(options, model_name=options.model_name or named), form)


def _write_traces(asked: Asked, output: _Output) -> None:
    """Write execution traces of the ranks of every stage."""
    from simcore.generate.step import contents_of_step, make_step, write_traces

    asked = replace(asked, given=asked.given - {"pp_rank"})
    output.summarise(lambda: contents_of_step(make_step(asked)))
    output.traces(partial(write_traces, asked, force=forced()))


def _only_corrected(extra: dict[str, Any]) -> None:
    """Refuse under --compat what AICB does not have."""
    given = [name for name, value in extra.items() if value is not None and name != "overlap_grad_reduce"]
    if given:
        raise InputError.at(
            f"--{given[0]}", f"AICB has no such option; leave it out or --compat {AICB}", found=given[0]
        )


megatron = _training("megatron")
deepspeed = _training("deepspeed")
deepseek = _training("deepseek")


@click.command(
    cls=Spelling,
    params=[
        *(click.Argument(["model"]), click.Argument(["config"], type=click.Path(), required=False)),
        *options_of("generate inference"),
        *_without_effect("generate inference without effect"),
        *_output_options("text", "csv", "chakra"),
    ],
)
def inference(model: str, config: str | None, **values: Any) -> None:
    """One prefill or decode step of MODEL.

    MODEL is a shipped model or, with a Hugging Face CONFIG, any name. Under --compat AICB's models: DeepSeek...,
    Qwen3-Moe..., Qwen3-Next..., and its CONFIG files.

    \b
    simcore generate inference llama-3-8b --phase prefill --seq_length 4096 -o prefill.txt
    simcore generate inference deepseek-v3 --world_size 32 --expert_model_parallel_size 32 --micro_batch 32 -o d.txt
    """
    from simcore.generate.aicb.files import aicb_inference_step, inference_file_name

    output, profiled = _Output.taken(values), values.pop("aiob_enable")
    output = output.named(lambda: inference_file_name(_of_aicb(model, config, values), output.form))
    for name in ("moe_enable", "aiob_forward_loops", "result_dir"):  # its models have experts, its files our --output
        values.pop(name)
    if profiled and not (output.compat and values["comp_filepath"]):
        found = "--aiob_enable without a time file" if output.compat else "--aiob_enable without --compat"
        raise InputError.at("--comp_filepath", "AICB would profile on a GPU here", expected="a time file", found=found)
    if output.compat:
        _only_corrected({"dtype": values["dtype"]})
        if output.form != "text":
            raise InputError.at(
                "--format", f"AICB has no {output.form} of inference", expected="text", found=output.form
            )
        if config is None:
            raise InputError.at("CONFIG", "AICB needs a configuration file", expected="a JSON file", found="none")
        output.finish(aicb_inference_step(_of_aicb(model, config, values)))
        return
    from simcore.generate.serving import inference_step, inference_traces

    made = inference_step(model, config, output.form, **values)
    if output.form != "chakra":
        output.finish(made)
        return
    output.summarise(made.contents)
    served = {name: value for name, value in values.items() if name not in ("pp_rank", "comp_filepath")}
    output.traces(partial(inference_traces, model, config, force=forced(), **served))


def _of_aicb(model: str, config: str | None, values: dict[str, Any]) -> InferenceOptions:
    """What AICB knows of an inference step."""
    from simcore.generate.aicb.inference import InferenceOptions

    names = {field.name for field in fields(InferenceOptions)}
    return InferenceOptions(model, config or "", **{name: values[name] for name in names & values.keys()})
