"""Figures that ASTRA-sim itself printed, to the nanosecond; more of them where shared/ is beside the checkout."""

import json
from math import prod
from pathlib import Path

import pytest

from simcore.api import run
from tests.published.peers import PHASES, first_generation, second_generation
from tests.shared import shared

HERE = Path(__file__).parent
FIGURES = {"compute": "compute_ns", "exposed": "exposed_ns", "comm": "comm_ns"}
OF_RANKS = {
    "finish_cycles": "finish_ns",
    "exposed_comm_cycles": "exposed_comm_ns",
    "gpu_time": "compute_ns",
    "comm_time": "comm_ns",
}
COMM_TYPES = {"NONE", "ALLREDUCE", "ALLTOALL", "ALLGATHER", "REDUCESCATTER"}
SAMPLE = 40
QUICK_NPUS = 64
QUICK_BUS_NPUS = 8


def cases(name):
    return json.loads((HERE / name).read_text())["cases"]


def check_first(case, folder):
    """Finish, ends of the passes, and nine figures of every layer."""
    report, expected = run(**first_generation(case, folder)).to_dict(), case["result"]
    assert report["time_ns"] == expected["finish_ns"]
    assert report["compute_ns"] == expected["total_compute_ns"]
    assert report["exposed_comm_ns"] == expected["total_exposed_ns"]
    ends = [span["end_ns"] for span in report["iterations"]]
    assert ends[: len(expected["pass_end_ns"])] == expected["pass_end_ns"]
    for layer, wanted in zip(report["layers"], expected["layers"], strict=True):
        found = {f"{p}_{f}": layer[phase][key] for p, phase in PHASES.items() for f, key in FIGURES.items()}
        assert found == {key: wanted[key] for key in found}


def ranks_of(text):
    """Ranks of a compact range such as 0-2,7."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def check_second(case, folder):
    """Four figures of every NPU."""
    report = run(**second_generation(case, folder)).to_dict()
    rows = {rank: row for row in report["ranks"] for rank in ranks_of(row["ranks"])}
    for figure, key in OF_RANKS.items():
        wanted = case["result"][figure]
        if wanted is None:
            continue
        wanted = wanted if isinstance(wanted, list) else [wanted] * len(rows)
        found = [rows[rank][key] for rank in range(len(rows))]
        assert found == [mine if want is None else want for want, mine in zip(wanted, found, strict=True)], key


@pytest.mark.parametrize("case", cases("astra_sim_1.json"), ids=lambda case: case["id"])
def test_profile_astra_sim_1_gives_its_figures(case, tmp_path):
    check_first(case, tmp_path)


@pytest.mark.parametrize("case", cases("astra_sim_2.json"), ids=lambda case: case["id"])
def test_profile_astra_sim_2_gives_its_figures(case, tmp_path):
    check_second(case, tmp_path)


def evenly(items):
    """A sample from beginning to end."""
    return items[:: max(1, len(items) // SAMPLE)]


def usable(case):
    """Whether 1.0 ran the case, and knew its communication types (it takes others silently for none)."""
    types = {layer[phase][1] for layer in case["workload"]["layers"] for phase in PHASES}
    return case["engine"] == "astra1" and case["usable"] is not False and types <= COMM_TYPES


def test_a_sample_of_all_figures_of_astra_sim_1(tmp_path):
    known = json.loads(shared("oracle", "astra1.json").read_text())["cases"]
    for case in evenly([case for case in known if usable(case) and _quick(case)]):
        check_first(case, tmp_path)


def _quick(case):
    """A shared bus takes every message by itself: on many NPUs that is seconds."""
    return not case["system"].get("model-shared-bus") or prod(case["network"]["units-count"]) <= QUICK_BUS_NPUS


def test_a_sample_of_all_figures_of_astra_sim_2(tmp_path):
    known = json.loads(shared("oracle", "astra2.json").read_text())["cases"]
    small = [case for case in known if _npus(case) <= QUICK_NPUS and not case["system"].get("model-shared-bus")]
    for number, case in enumerate(evenly(small)):
        folder = tmp_path / str(number)
        folder.mkdir()
        check_second(case, folder)


def _npus(case):
    return prod(dim["npus"] for dim in case["topology"]["dims"])
