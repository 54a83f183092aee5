"""`simcore cost`: a whole training run in closed form."""

from __future__ import annotations

import click

from simcore.cli.command import Lazy

WAYS = {
    "transformer": ("FLOP, traffic, time, energy, money of a GPT.", "cost_transformer:transformer_command"),
    "simple": ("Time by matrix products, pipeline, collectives.", "cost_simple:simple_command"),
    "scaling": ("Fastest degrees by number of devices.", "cost_scaling:scaling_command"),
    "failures": ("Goodput of a run whose nodes fail.", "cost_failures:failures_command"),
}


@click.group(cls=Lazy, table=WAYS)
def command() -> None:
    """Cost of a whole training run: arithmetic, traffic, time, energy and money, and what failures leave of it.

    \b
    simcore cost transformer --num_layers 96 --d_model 12288 --dataset_size 3e11 --batch_size 1536 --p_data 8
    simcore cost simple --chip H100 --n_layers 96 --d_model 12288 --pp 8 --tp 8 --dp 8
    """
