"""`simcore generate`: workloads from a model's shape; each kind is imported only when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from simcore.errors import closest

__all__ = ["command"]

# Kind -> (what it makes, module of simcore.cli that defines a click command of that name).
KINDS = {
    "megatron": ("A Megatron-LM training step.", "generate_models"),
    "deepspeed": ("A DeepSpeed (ZeRO) training step.", "generate_models"),
    "deepseek": ("A DeepSeek training step.", "generate_models"),
    "inference": ("An inference step of a language model.", "generate_models"),
    "wse": ("Nodes and traces of a wafer-scale inference system.", "generate_wse"),
    "collective": ("One collective on all NPUs: a micro-benchmark.", "generate_traces"),
    "schedule": ("Who sends which chunk to whom, by an algorithm on a machine.", "generate_schedule"),
    "synthetic": ("Traces statistically similar to given ones, without their names and sizes.", "generate_traces"),
}


class Kinds(click.Group):
    """The kinds of workloads, each imported on first use."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(KINDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command that makes `name`, None when there is no such kind."""
        if name not in KINDS:
            return None
        command: click.Command = getattr(import_module(f"simcore.cli.{KINDS[name][1]}"), name)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with a hint at the nearest kind."""
        if args and not args[0].startswith("-") and args[0] not in KINDS:
            raise click.UsageError(f"no such kind '{args[0]}'; {closest(args[0], KINDS)}", context)
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of kinds, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in KINDS.items()])


@click.group(cls=Kinds)
def command() -> None:
    """Make a workload from a model's shape, a micro-benchmark or a synthetic trace.

    \b
    simcore generate megatron --model llama-3-8b --world_size 64 --global_batch 64 --gpu_type H100 -o step.txt
    simcore generate collective --kind all_reduce --bytes "64 MiB" -o allreduce.et
    """
