"""The continuous optimiser of document 004: the source's own points, and laws of its search."""

import json
from itertools import pairwise

import pytest

from simcore.cli import main
from simcore.cost.closed.scaling import AXES, GROWTH, Degrees, Device, evaluate, model_for, search
from simcore.cost.closed.simple import CHIPS as SOURCES
from simcore.cost.closed.simple import Chip
from simcore.errors import InputError
from tests.shared import shared

CHIPS = SOURCES["scaling"]
H100 = CHIPS["H100"]
POD = Chip(32 * H100.flop_per_s, 32 * H100.memory_bytes_per_s, 5e9)
DEVICES = {
    "A100": Device(CHIPS["A100"]),
    "H100": Device(H100),
    "H100_nofabric": Device(H100, network_reduction=False),
    "H100x32_5GBps": Device(POD),
}
NAMES = {name: name for name in AXES} | {"n_microbatches": "micro_batches"}


def test_every_point_of_the_source_is_met():
    for point in json.loads(shared("oracle", "trainrun.json").read_text())["run_optimizer2"]:
        degrees = Degrees(**{ours: point[theirs] for theirs, ours in NAMES.items()})
        model = model_for(point["training_flop"])
        found = evaluate(model, DEVICES[point["device"]], degrees, point["bytewidth"])
        shape = (model.parameters, model.tokens, model.batch_tokens, model.layers, model.width)
        assert shape == pytest.approx([point[name] for name in "NDBLd"], rel=1e-12)
        assert found.batch_s == pytest.approx(point["batch_secs"], rel=1e-12)
        assert found.train_s == pytest.approx(point["train_secs"], rel=1e-12)
        assert found.utilization == pytest.approx(point["util"], rel=1e-12)
        for name, seconds in found.phases.items():
            assert list(seconds.values()) == pytest.approx(point[name], rel=1e-12)


def test_a_search_grows_one_degree_at_a_time_and_never_slows_down():
    found = search(model_for(1e25), DEVICES["H100"], 1e6)
    for before, after in pairwise(found):
        grown = [axis for axis in AXES if getattr(after.degrees, axis) != getattr(before.degrees, axis)]
        assert len(grown) == 1
        assert after.degrees.devices == pytest.approx(before.degrees.devices * GROWTH)
        assert after.utilization < before.utilization * (1 + 1e-9)
    assert found[-1].degrees.devices <= 1e6 < found[-1].degrees.devices * GROWTH


def test_a_slow_network_makes_the_pipeline_deep():
    """A pipeline sends nothing in this model; pods behind 5 GB/s can use little else."""
    pods, chips = (search(model_for(4e26), DEVICES[name], 1e4)[-1].degrees for name in ("H100x32_5GBps", "H100"))
    assert pods.pp > 10 * chips.pp


def test_degrees_that_make_no_sense_are_refused():
    with pytest.raises(InputError, match="more than 2 micro-batches"):
        evaluate(model_for(1e25), DEVICES["H100"], Degrees(pp=4, micro_batches=2))
    with pytest.raises(InputError, match="below 1"):
        evaluate(model_for(1e25), DEVICES["H100"], Degrees(dp=0.5))


@pytest.mark.parametrize("how", [(), ("--fixed",)])
@pytest.mark.parametrize(("flop", "layers"), [("1", 0.0081755), ("3.34e12", 0.999553)])
def test_so_little_arithmetic_that_no_layer_is_left_is_what_is_refused(how, flop, layers, capsys):
    assert main(["cost", "scaling", "--training_flop", flop, *how]) == 2
    assert f"--training_flop: error: the model that this trains best has {layers:g} layers" in capsys.readouterr().err
    assert main(["cost", "scaling", "--training_flop", "3.35e12", "--max_devices", "2"]) == 0


def test_the_command_prints_a_line_for_every_doubling(capsys):
    assert main(["cost", "scaling", "--training_flop", "1e26", "--max_devices", "1000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("The fastest run takes") and lines[2].startswith("N: 9.129e+11, D: 1.826e+13")
    devices = [int(line.split()[0]) for line in lines[5:]]
    assert devices[:3] == [1, 2, 4] and devices == sorted(devices)


def test_given_degrees_are_not_searched(capsys):
    command = "cost scaling --training_flop 4e26 --chips_per_device 32 --network_bandwidth 5e9 --pp 16 --dp 64"
    assert main([*command.split(), "--n_microbatches", "128", "--fixed"]) == 0
    assert capsys.readouterr().out.startswith("The run takes")
    assert main([*command.split(), "--n_microbatches", "128", "--fixed", "--json"]) == 0
    (spread,) = json.loads(capsys.readouterr().out)["spreads"]
    assert spread["batch_s"] == pytest.approx(90.00557366308193)
    assert spread["devices"] == 1024
