"""`simcore cost`: a whole training run in closed form."""

from __future__ import annotations

import click

from simcore.cli.cost_failures import failures_command
from simcore.cli.cost_scaling import scaling_command
from simcore.cli.cost_simple import simple_command
from simcore.cli.cost_transformer import transformer_command

__all__ = ["command"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Cost of a whole training run: arithmetic, traffic, time, energy and money, and what failures leave of it.

    \b
    simcore cost transformer --num_layers 96 --d_model 12288 --dataset_size 3e11 --batch_size 1536 --p_data 8
    simcore cost simple --n_layers 96 --d_model 12288 --pp 8 --tp 8 --dp 12
    """


for one in (transformer_command, simple_command, scaling_command, failures_command):
    command.add_command(one)
