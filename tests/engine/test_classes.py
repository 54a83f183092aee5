"""Which NPUs are one class: a naive refinement, and runs in which groups share a part of the network."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcore
from simcore.engine.classes import Rows, alike
from simcore.engine.settings import Settings
from simcore.network.topology.model import Dimension, Topology
from simcore.network.topology.moves import Fold
from simcore.system.config import SystemConfig
from simcore.workload.model import CollectiveKind, Layer, Parallelism, Phase, Workload
from tests.runs import Run

FOLDS = st.sampled_from([None, Fold(), Fold(4), Fold(4, 2), Fold(2)])


def met(npu, kinds, rows):
    """What an NPU sees of its row: a naive reading of what `Rows` says."""
    first = npu - npu // rows.stride % rows.size * rows.stride
    own = [kinds[first + place * rows.stride] for place in range(rows.size)]
    place = npu // rows.stride % rows.size
    if rows.fold is None:
        return tuple(sorted(own)), kinds[npu]
    plays = rows.fold.of(np.arange(rows.size)).tolist()
    return tuple(own), plays[place] if all(own[at] == own[plays[at]] for at in range(rows.size)) else place


def naive(kinds, meeting):
    while True:
        seen = [(kind, *(met(npu, kinds, rows) for rows in meeting)) for npu, kind in enumerate(kinds)]
        numbers = {each: number for number, each in enumerate(dict.fromkeys(seen))}
        if len(numbers) == len(set(kinds)):
            return kinds
        kinds = [numbers[each] for each in seen]


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 4]), FOLDS), min_size=1, max_size=3),
    st.dictionaries(st.integers(0, 63), st.integers(1, 2), max_size=4),
)
def test_classes_are_those_of_a_naive_refinement(dims, differ):
    meeting, npus = [], 1
    for size, own in dims:
        meeting.append(Rows(npus, size, own if own is None or size == 4 else Fold()))
        npus *= size
    kinds = [differ.get(npu, 0) for npu in range(npus)]
    expected = naive(kinds, meeting)
    classes = {}
    for npu, kind in enumerate(expected):
        classes.setdefault(kind, []).append(npu)
    assert [[*members] for members in alike(np.array(kinds), meeting)] == sorted(classes.values())


@st.composite
def cut_machines(draw):
    """Model-parallel groups that lie in a dimension with those of data-parallel ones, and one or two slow NPUs."""
    kind, other = (draw(st.sampled_from(["Ring", "Switch", "FullyConnected", "Mesh"])) for _ in range(2))
    sizes = draw(st.sampled_from([(4, 2), (4, 4), (8, 2), (4, 3)]))
    dims = (
        Dimension(kind, sizes[0], 50e9, 500.0),
        Dimension(other, sizes[1], 12.5e9, draw(st.sampled_from([7.0, 500.0]))),
    )
    kinds = st.sampled_from([CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL])
    phases = st.builds(Phase, st.sampled_from([0, 3000]), kinds, st.sampled_from([7, 4096, 200_000]))
    layers = tuple(draw(st.builds(Layer, st.just("row"), phases, phases, phases)) for _ in range(2))
    workload = Workload("HYBRID_TRANSFORMER", layers, Parallelism(tp=2))
    npu = st.integers(0, sizes[0] * sizes[1] - 1)
    slow = draw(st.dictionaries(npu, st.sampled_from([1.001, 1.5]), min_size=1, max_size=2))
    network = draw(st.sampled_from(["congested", "congested", "fair"]))
    chosen = Settings(network=network, stragglers=slow, queues_per_dim=draw(st.sampled_from([1, 2])))
    system = SystemConfig(preferred_dataset_splits=draw(st.sampled_from([1, 4])))
    return Run(workload, Topology(dims), system, settings=chosen)


@settings(deadline=None, max_examples=80)
@given(cut_machines())
def test_with_stragglers_where_groups_meet_the_report_is_that_of_messages(run):
    assert run.report() == run.report(exact="messages")


@pytest.mark.parametrize(("topology", "classes"), [("cluster_64_nodes", 16), ("tpu_v4_torus", 32)])
def test_only_the_places_of_a_straggler_and_of_those_whom_it_meets_are_unfolded(topology, classes):
    """512 NPUs in pairs: in its own place all differ; others meet one of these along a dimension, or none."""
    assert simcore.run("gpt_7b", topology, straggler="5=1.5").to_dict()["classes"] == classes
