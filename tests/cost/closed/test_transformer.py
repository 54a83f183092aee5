"""Arithmetic and traffic of a training run: the source's own figures, and laws."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simcore.cost.closed.transformer import Cost, Grid, Model, Pass, Training, broadcast, evaluate, multiply, reduce
from simcore.errors import InputError

# The first example of document 004: a GPT-4-like run on 15,360 A100.
MODEL = Model(layers=120, d_model=15360, d_ffn=4 * 15360, heads=240, experts=8)
GRID = Grid(data=16, tensor_int=8, exp=8, pipe=15)
TRAINING = Training(13e12, batch_size=8192, seq_len=8192)

degrees = st.sampled_from([1, 2, 4])
grids = st.builds(Grid, degrees, degrees, degrees, degrees, degrees, degrees)
models = st.builds(
    Model,
    layers=st.sampled_from([4, 8]),
    d_model=st.sampled_from([1024, 4096]),
    d_ffn=st.sampled_from([4096, 8192]),
    heads=st.sampled_from([16, 64]),
    experts=st.sampled_from([4, 8]),
    glu=st.booleans(),
    multi_query=st.booleans(),
    consecutive=st.booleans(),
)
SMALL = Training(1 << 24, batch_size=256, seq_len=2048)


def run(model=MODEL, grid=GRID, training=TRAINING):
    return evaluate(model, grid, training, efficient=False)


def close(first: Pass, second: Pass):
    assert (first.flop, first.sent, first.received) == pytest.approx((second.flop, second.sent, second.received))


def test_the_documents_example_is_met():
    # davidsj/ml_par_sim @520dcff, as run
    cost = evaluate(MODEL, GRID, TRAINING)
    assert (cost.parameters, cost.tokens, cost.training.batches) == (2266811596800, 12999993589760, 193715)
    assert cost.microbatch_sizes == (16, 32, 64, 128)
    total = cost.total
    close(total.forward, Pass(8.198143924891075e24, 1.9233150078717788e20, 3.745878196673839e20))
    close(total.backward, Pass(1.6402968278972434e25, 2.3081829055951012e20, 3.745878196673839e20))


def test_the_primitives_are_those_of_the_source():
    assert multiply(6) == Cost(Pass(flop=6), Pass(flop=24))
    assert reduce(5, 8, 4) == Cost(Pass(35, 15, 15), Pass(0, 5, 15))
    assert broadcast(5, 2, 4) == Cost(Pass(0, 5, 30), Pass(30, 30, 30))
    assert broadcast(8, 1, 1, 0.25) == Cost(Pass(0, 2, 2), Pass(2, 2, 2))


@given(models)
def test_a_single_cluster_sends_nothing(model):
    total = run(model, Grid(), SMALL).total
    assert (total.forward.sent, total.forward.received, total.backward.sent, total.backward.received) == (0, 0, 0, 0)


@given(models, grids)
def test_how_the_run_is_spread_changes_neither_the_model_nor_its_products(model, grid):
    alone, spread = run(model, Grid(), SMALL), run(model, replace(grid, tensor_int=1, tensor_ext=1), SMALL)
    assert spread.parameters == alone.parameters
    assert spread.total.forward.flop == pytest.approx(alone.total.forward.flop)


@given(models, grids, st.integers(2, 5))
def test_a_longer_run_costs_more_in_proportion(model, grid, times):
    once = run(model, grid, SMALL).total
    more = run(model, grid, replace(SMALL, dataset_tokens=times * SMALL.dataset_tokens)).total
    close(more.forward, once.forward.times(times))
    close(more.backward, once.backward.times(times))


@given(models, grids)
def test_recomputation_adds_the_forward_pass_to_the_backward_pass(model, grid):
    plain = run(model, grid, SMALL).total
    recomputed = run(model, grid, replace(SMALL, checkpointing=True)).total
    close(recomputed.backward, plain.backward + plain.forward)


@given(models, grids)
def test_every_efficient_micro_batch_divides_the_batch_over_all_replicas(model, grid):
    try:
        sizes = evaluate(model, grid, SMALL).microbatch_sizes
    except InputError:
        assume(False)
    assert sizes
    assert all(SMALL.batch_size % size == 0 and size % grid.data == 0 for size in sizes)


@pytest.mark.parametrize(
    ("model", "grid", "training", "option"),
    [
        (MODEL, GRID, replace(TRAINING, batch_size=16384), "--batch_size"),
        (MODEL, replace(GRID, pipe=16), TRAINING, "--p_pipe"),
        (MODEL, replace(GRID, pipe=120, data=32), TRAINING, "--p_pipe"),
        (replace(MODEL, d_model=2048), replace(GRID, tensor_ext=4), TRAINING, "--p_tensor_ext"),
        (replace(MODEL, d_ffn=4096), GRID, TRAINING, "--p_tensor_int"),
        (MODEL, replace(GRID, exp=16), TRAINING, "--p_exp"),
        (MODEL, GRID, replace(TRAINING, dataset_tokens=1), "--dataset_size"),
    ],
)
def test_what_wastes_the_hardware_or_does_not_divide_is_refused(model, grid, training, option):
    with pytest.raises(InputError) as caught:
        evaluate(model, grid, training)
    assert option in [problem.location.file for problem in caught.value.problems]
