"""`simcore generate`: workloads from a model's shape; each kind is imported only when it is called."""

from __future__ import annotations

import click

from simcore.cli.command import Lazy

# Kind -> (what it makes, module of simcore.cli and the command in it).
KINDS = {
    "megatron": ("A Megatron-LM training step.", "generate_models:megatron"),
    "deepspeed": ("A DeepSpeed (ZeRO) training step.", "generate_models:deepspeed"),
    "deepseek": ("A DeepSeek training step.", "generate_models:deepseek"),
    "inference": ("An inference step of a language model.", "generate_models:inference"),
    "wse": ("Nodes and traces of a wafer-scale inference system.", "generate_wse:wse"),
    "collective": ("One collective on all NPUs: a micro-benchmark.", "generate_traces:collective"),
    "schedule": ("Who sends which chunk to whom, by an algorithm on a machine.", "generate_schedule:schedule"),
    "synthetic": (
        "Traces statistically similar to given ones, without their names and sizes.",
        "generate_traces:synthetic",
    ),
}


@click.group(cls=Lazy, table=KINDS)
def command() -> None:
    """Make a workload from a model's shape, a micro-benchmark or a synthetic trace.

    \b
    simcore generate megatron --model llama-3-8b --world_size 64 --global_batch 64 --gpu_type H100 -o step.txt
    simcore generate collective --kind all_reduce --bytes "64 MiB" -o allreduce.et
    """
