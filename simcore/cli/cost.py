"""`simcore cost`: a whole training run in closed form."""

from __future__ import annotations

import click

from simcore.cli.cost_scaling import scaling_command
from simcore.cli.cost_simple import simple_command
from simcore.cli.cost_transformer import transformer_command

__all__ = ["command"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Cost of a whole training run: arithmetic, traffic, time, energy and money, in closed form."""


for one in (transformer_command, simple_command, scaling_command):
    command.add_command(one)
