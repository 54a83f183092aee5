import json

import pytest

from simcore.cli import main
from simcore.cost.executed import execute
from simcore.cost.simple import Chip, Setup, evaluate
from simcore.network.topology.model import Dimension, Topology

FAST = Chip(1e14, 1e12, 1e30)
SETUP = {"layers": 16, "d_model": 4096, "batch_size": 64, "microbatch_size": 8, "seq_len": 1024}


def machine(tp: int, dp: int, pp: int, bytes_per_s: float, latency_ns: float = 0.0) -> Topology:
    sizes = [size for size in (tp, dp, pp) if size > 1]
    return Topology(tuple(Dimension("Switch", size, bytes_per_s, latency_ns) for size in sizes))


@pytest.mark.parametrize(
    "tp,dp,pp,interleaving", [(2, 1, 1, 1), (1, 2, 1, 1), (2, 2, 2, 1), (2, 2, 4, 2), (1, 2, 8, 1), (4, 2, 2, 4)]
)
def test_an_ideal_network_executes_the_closed_form(tp, dp, pp, interleaving):
    setup = Setup(**SETUP, tp=tp, dp=dp, pp=pp, interleaving=interleaving)
    run = evaluate(setup, FAST, "head")
    executed = execute(setup, run, machine(tp, dp, pp, 1e30))
    assert executed.batch_time == pytest.approx(run.batch_time, rel=1e-6)
    assert executed.compute_only == executed.batch_time


def test_slower_links_and_latency_only_add():
    setup = Setup(**SETUP, tp=2, dp=2, pp=4)
    run = evaluate(setup, FAST, "head")
    networks = [(1e30, 0.0), (600e9, 0.0), (100e9, 0.0), (100e9, 5000.0)]
    times = [execute(setup, run, machine(2, 2, 4, *network)).excess for network in networks]
    assert times == sorted(times)
    assert times[0] < times[1] < times[2] < times[3]


COMMAND = "cost simple --chip A100_40GB --n_layers 16 --d_model 4096 --batch_size 64 --microbatch_size 8 --tp 8 --dp 8"


def test_the_command_prints_the_excess_and_the_link_that_a_site_needs(capsys):
    assert main([*COMMAND.split(), "--topology", "torus_4x4x4", "--wan_bandwidth", "100 Gb/s", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    executed, operated = document["executed"], document["operation"]
    assert executed["excess"] == pytest.approx(executed["batch_time"] / document["batch_time"] - 1)
    gradients_bytes = 2 * document["P"]  # 8 bits, to and fro
    busy_s = document["batch_time"] - document["gradient_reduction_time"]
    assert operated["break_even_bytes_per_s"] == pytest.approx(gradients_bytes / busy_s)
    assert main([*COMMAND.split(), "--topology", "torus_4x4x4"]) == 0
    assert "against the closed form" in capsys.readouterr().out


@pytest.mark.parametrize(
    "more,message",
    [
        (["--topology", "pods_1024"], "1024 NPUs, the setup 64 chips"),
        (["--topology", "torus_4x4x4", "--tp2", "2"], "not --tp2"),
        (["--topology", "no_such"], "no_such"),
        (["--dp", "1", "--wan_bandwidth", "1"], "sites are replicas"),
    ],
)
def test_what_cannot_be_executed_says_so(more, message, capsys):
    assert main([*COMMAND.split(), *more]) == 2
    assert message in capsys.readouterr().err
