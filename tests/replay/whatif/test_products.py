"""Other widths: matrix products timed anew by the ratio of their roofline times."""

import json

import pytest

from simcore.errors import InputError
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.whatif.changes import width
from simcore.replay.whatif.products import widths
from simcore.workload.kineto import Product
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import Recorder
from tests.shared import recording

HIDDEN, FFN, TOKENS = 4096, 16384, 8192
LAYER = [(TOKENS, HIDDEN, HIDDEN), (TOKENS, HIDDEN, FFN), (TOKENS, FFN, HIDDEN)]


def recorded_products(device="NVIDIA H100 80GB HBM3", shapes=LAYER, also=()):
    recorder = Recorder()
    for _ in range(3):
        for m, k, n in shapes:
            began_us, size = recorder.now_us, m * k * n / 1e9
            recorder.launch("gemm", size)
            said = {"Input Dims": [[m, k], [k, n], []], "Input type": ["c10::BFloat16", "c10::BFloat16", ""]}
            recorder.add("cpu_op", "aten::mm", began_us, recorder.now_us - began_us, 1, **said)
        recorder.launch("norm", 90)
        for name in also:
            recorder.launch(name, 10)
        recorder.synchronise()
        recorder.mark()
    document = recorder.document() | {"deviceProperties": [{"name": device}]}
    return read_kineto(json.dumps(document).encode(), "made.json")


def gained(which, size, **more):
    step = replay_traces([recorded_products(**more)], Changes(), [width(which, size)]).steps[0][1]
    return step.period.device_ns - step.baseline.device_ns


def test_the_recorded_width_changes_nothing():
    assert gained("hidden", HIDDEN) == gained("ffn", FFN) == 0


def test_large_products_grow_with_their_operations():
    """Twice the feed-forward size doubles two products; twice the hidden size doubles them and quadruples the first."""
    first, second = (m * k * n / 1e9 * 1000 for m, k, n in LAYER[:2])
    assert gained("ffn", 2 * FFN) == pytest.approx(2 * second, rel=0.1)
    assert gained("hidden", 2 * HIDDEN) == pytest.approx(3 * first + 2 * second, rel=0.1)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"shapes": []}, "no matrix product says its shape"),
        ({"device": "Some Accelerator"}, "nothing is known of the device 'Some Accelerator'"),
        ({"also": ["ncclAllReduce"]}, "how the sizes of the collectives depend on it"),
        ({"shapes": [(8, 16, 32), (8, 64, 128)]}, "no dimension is common to most weights"),
    ],
)
def test_widths_need_shapes_on_one_known_device(more, why):
    with pytest.raises(InputError) as raised:
        gained("hidden", 2 * HIDDEN, **more)
    assert why in str(raised.value)


def test_a_vocabulary_is_no_feed_forward_size():
    shapes = [*LAYER, (TOKENS, HIDDEN, 50_000), (TOKENS, HIDDEN, 3 * HIDDEN)]
    assert widths(Product(*shape, "bf16") for shape in shapes) == {"hidden": HIDDEN, "ffn": FFN}


@pytest.mark.parametrize(
    ("name", "hidden", "ffn"),
    [
        ("h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 1024, 2816),
        ("h100__gaunernst_bert-small-uncased__1016001.json.gz", 512, 2048),
        ("h100__Falconsai_nsfw_image_detection__1016002.json.gz", 768, 3072),
    ],
)
def test_the_widths_of_public_models_are_those_of_their_configuration(name, hidden, ffn):
    """Qwen1.5-0.5B, BERT small and ViT base, as their published configurations state them."""
    (trace,) = recording("tracelens", name)
    assert widths(trace.products.values()) == {"hidden": hidden, "ffn": ffn}
