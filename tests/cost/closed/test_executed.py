import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.cli import main
from simcore.cost.closed import transformer
from simcore.cost.closed.executed import execute, simple_batch, transformer_batch, utilised
from simcore.cost.closed.simple import Chip, Setup, evaluate
from simcore.cost.systems import CLUSTERS
from simcore.cost.words import cluster_of
from simcore.errors import InputError
from simcore.model.shape import Model as Shape
from simcore.network.topology.model import Dimension, Topology

FAST = Chip(1e14, 1e12, 1e30)
SETUP = {"layers": 16, "d_model": 4096, "batch_size": 64, "microbatch_size": 8, "seq_len": 1024}


def machine(*sizes: int, bytes_per_s: float = 1e30, latency_ns: float = 0.0) -> Topology:
    """A switch for every axis, innermost first."""
    used = [size for size in sizes if size > 1] or [1]
    return Topology(tuple(Dimension("Switch", size, bytes_per_s, latency_ns) for size in used))


@pytest.mark.parametrize(
    "degrees",
    [
        *({"tp": 2}, {"dp": 2}, {"tp": 2, "dp": 2, "pp": 2}, {"tp": 2, "dp": 2, "pp": 4, "interleaving": 2}),
        *({"dp": 2, "pp": 8}, {"tp": 4, "dp": 2, "pp": 2, "interleaving": 4}, {"tp": 2, "tp2": 2, "pp": 2}),
        *({"tp2": 4, "dp": 2}, {"experts": 4, "dp": 2, "pp": 2}, {"experts": 2, "tp": 2, "dp": 2}),
    ],
)
def test_an_ideal_network_executes_the_closed_form(degrees):
    setup = Setup(**SETUP, **degrees)
    run = evaluate(setup, FAST, "head")
    axes = [degrees.get(name, 1) for name in ("tp", "tp2", "experts", "dp", "pp")]
    executed = execute(simple_batch(setup, run), machine(*axes))
    assert executed.batch_time == pytest.approx(run.batch_time, rel=1e-6)
    assert executed.compute_only == executed.batch_time


def test_slower_links_and_latency_only_add():
    setup = Setup(**SETUP, tp=2, dp=2, pp=4)
    run = evaluate(setup, FAST, "head")
    networks = [(1e30, 0.0), (600e9, 0.0), (100e9, 0.0), (100e9, 5000.0)]
    batch = simple_batch(setup, run)
    times = [
        execute(batch, machine(2, 2, 4, bytes_per_s=rate, latency_ns=latency)).excess for rate, latency in networks
    ]
    assert times == sorted(times)
    assert times[0] < times[1] < times[2] < times[3]


COMMAND = "cost simple --chip A100_40GB --n_layers 16 --d_model 4096 --batch_size 64 --microbatch_size 8 --tp 4 --dp 16"


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
        (["--topology", "torus_4x4x4", "--n_experts", "2", "--n_routed_experts", "2"], "routing to one expert"),
        (["--topology", "torus_4x4x4", "--n_experts", "2", "--tp2", "2"], "experts beside one tensor axis"),
        (["--topology", "no_such"], "no_such"),
        (["--dp", "1", "--wan_bandwidth", "1"], "sites are replicas"),
    ],
)
def test_what_cannot_be_executed_says_so(more, message, capsys):
    assert main([*COMMAND.split(), *more]) == 2
    assert message in capsys.readouterr().err


MODEL = transformer.Model(layers=4, d_model=1024, d_ffn=4096, heads=16, experts=4, glu=True)
TRAINING = transformer.Training(1 << 22, batch_size=64, seq_len=1024)
GRIDS = [
    *(transformer.Grid(), transformer.Grid(tensor_int=4), transformer.Grid(tensor_ext=4, data=2)),
    *(transformer.Grid(tensor_ext=2, tensor_int=2, data=2), transformer.Grid(tensor_int=2, seq=2, exp=2, data=2)),
    *(transformer.Grid(tensor_int=2, exp=2, data=2, pipe=4), transformer.Grid(tensor_ext=2, seq=4, pipe=2)),
]


def run_on(grid, training=TRAINING, model=MODEL, bytes_per_s=1e30, **more):
    run = transformer.evaluate(model, grid, training, efficient=False)
    batch = transformer_batch(run, flop_per_s=1e11, element_bytes=2, **more)
    axes = (grid.tensor_int, grid.tensor_ext, grid.exp, grid.seq, grid.data, grid.pipe)
    return execute(batch, machine(*axes, bytes_per_s=bytes_per_s))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_on_an_ideal_network_a_grid_takes_its_arithmetic_and_the_bubble(grid, checkpointing):
    """The closed form has no bubble; with equal stages it is (p - 1) / m of what is pipelined, all but 0.01 %."""
    training = replace(TRAINING, checkpointing=checkpointing)
    executed = run_on(grid, training, microbatch_size=4 * grid.data)
    bubble = (grid.pipe - 1) / (training.batch_size / (4 * grid.data))
    assert executed.batch_time == executed.compute_only
    assert executed.excess == pytest.approx(bubble, abs=1e-5)


@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("grid", GRIDS[1:], ids=str)
def test_every_split_costs_time_on_a_real_network(grid, multi_query):
    model = replace(MODEL, multi_query=multi_query, consecutive=multi_query)
    fast, slow = (run_on(grid, model=model, bytes_per_s=rate, microbatch_size=16) for rate in (100e9, 50e9))
    assert fast.compute_only < fast.batch_time < slow.batch_time


def test_the_forward_pass_alone_is_executed_alone():
    trained = (replace(TRAINING, forward_only=only) for only in (False, True))
    both, ahead = (run_on(GRIDS[5], training, bytes_per_s=100e9) for training in trained)
    assert ahead.closed_form < both.closed_form / 2 and ahead.batch_time < both.batch_time / 2


def test_too_many_rows_and_groups_are_refused():
    with pytest.raises(InputError, match="both tensor axes, or one of them"):
        run_on(transformer.Grid(tensor_ext=2, tensor_int=2, seq=2))
    with pytest.raises(InputError, match="one by one"):
        run_on(transformer.Grid(), replace(TRAINING, dataset_tokens=1e9, batch_size=1 << 17))
    with pytest.raises(InputError, match="does not divide"):
        run_on(transformer.Grid(), microbatch_size=3)


GRID_COMMAND = (
    "cost transformer --num_layers 8 --d_model 4096 --dataset_size 1e9 --batch_size 256 --p_data 4 --p_tensor_int 4 "
    "--p_pipe 4 --cluster_flop_rate 1e14 --microbatch_size 16"
)


def test_the_grid_of_the_command_is_executed_beside_its_closed_form(capsys):
    assert main([*GRID_COMMAND.split(), "--topology", "torus_4x4x4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    executed = document["executed"]
    assert executed["closed_form"] == pytest.approx(document["runtime_s"] / document["n_batches"])
    assert executed["compute_only"] == pytest.approx(executed["closed_form"] * (1 + 3 / 16), rel=1e-4)
    assert executed["excess"] > 3 / 16


@pytest.mark.parametrize(
    "given,message",
    [
        (GRID_COMMAND, "--cluster or --topology, too"),
        (GRID_COMMAND.replace("--cluster_flop_rate 1e14", "--topology torus_4x4x4"), "needs the rate of a cluster"),
    ],
)
def test_what_the_execution_needs_is_asked_for(given, message, capsys):
    assert main(given.split()) == 2
    assert message in capsys.readouterr().err


@settings(max_examples=20, deadline=None)
@given(
    name=st.sampled_from([*CLUSTERS, "V100", "MI300X", "GB200"]),
    tp=st.sampled_from([1, 2, 8]),
    pp=st.sampled_from([1, 2]),
    dp=st.sampled_from([1, 4]),
)
def test_a_batch_on_a_cluster_takes_what_is_predicted_for_a_step(name, tp, pp, dp):
    """Also in the cluster's number format and as its software does by itself."""
    grid = transformer.Grid(data=dp, pipe=pp, tensor_int=tp)
    counted = transformer.Model(layers=8, d_model=4096, heads=64, d_ffn=16384, d_head=64)
    run = transformer.evaluate(counted, grid, transformer.Training(1 << 30, 32), efficient=False)
    shape = Shape("same", 8, 4096, 64, 16384, 1, 1, 64, gated=counted.glu, tied=True, norms=1, parallel_block=True)
    words = {"tp": tp, "pp": pp, "dp": dp, "global_batch": 32, "sequence_parallel": tp > 1}
    asked = simcore.predict(shape, name, tp * pp * dp, 2048, **words)
    assert utilised(run, cluster_of(name), None).step_s == asked.step_s
