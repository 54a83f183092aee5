"""Every public trace at hand: it replays with the stated outcome, or the refusal says precisely why."""

import re

import pytest

from simcore.errors import InputError
from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.report import to_dict
from simcore.workload.kineto_reader import read_ranks
from tests.shared import recording, shared

NO_MARKS, NO_LAUNCH = "no ProfilerStep marks", "have no recorded launch"
IN_GRAPH, AHEAD = "inside graphs", "no step is steady"
HOST, CPU = "host execution trace", "nothing in this trace ran on a GPU"

# (ranks, steps, largest period error without residuals, warnings) per file; or why it is refused.
OUTCOMES = {
    "hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz": (1, 2, 0.001, ("launched nothing",)),
    "hta/critical_path__alexnet__benchmark_result_2869224_1695835535_trace.json.gz": (1, 1, 0.001, (NO_MARKS,)),
    "hta/critical_path__cuda_event_sync__event_sync_trace.json.gz": (1, 1, 0.001, ()),
    "hta/critical_path__cuda_event_sync_multi_stream__event_sync_trace.json.gz": (1, 1, 0.001, (NO_MARKS,)),
    "hta/critical_path__simple_add__benchmark_result_493459_1694039959_trace.json.gz": (1, 1, 0.001, (NO_MARKS,)),
    "hta/execution_trace__benchmark_simple_add_et.json.gz": HOST,
    "hta/execution_trace__benchmark_simple_add_trace.json.gz": (1, 1, 0.001, (NO_MARKS,)),
    "hta/large_integer_trace__rank-70.json.gz": (1, 1, 0.001, (NO_MARKS, NO_LAUNCH)),
    "hta/nccl_parser_config__nccl_data.json.gz": (1, 3, 0.001, ()),
    "hta/negative_queue_length_values_check__rank0.json.gz": (1, 5, 0.01, (IN_GRAPH,)),
    "hta/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (1, 5, 0.003, ()),
    "hta/rank_non_gpu__rank_non_gpu.json.gz": CPU,
    "hta/timeline_analysis__sampled_rank-0.json.gz": (1, 2, 0.001, ()),
    "hta/trace_diff__control__control.json.gz": (1, 6, 0.001, ()),
    "hta/trace_filter__sampled_rank-1.json.gz": (1, 2, 0.001, ()),
    "hta/triton_example__triton_example.json.gz": (1, 1, 0.001, (NO_MARKS,)),
    "hta/with_gpu_user_annotation.json.gz": (1, 1, 0.001, (NO_MARKS,)),
    "kineto/r50_autograd_w0.pt.trace.json.gz": (1, 1, 0.002, (NO_MARKS,)),
    "kineto/r50_w0.pt.trace.json.gz": (1, 6, 0.001, ()),
    "kineto/r50_w4.pt.trace.json.gz": (1, 6, 0.001, ()),
    "param/dlrm_kineto.tar.gz": (8, 1, 0.001, ()),
    "param/dlrm_pytorch_et.tar.gz": HOST,
    "param/hf_GPT2_et.json.tar.gz": HOST,
    "param/linear_et.json.gz": HOST,
    "param/linear_kineto.json.gz": (1, 1, 0.001, (NO_MARKS,)),
    "param/pt2_et.json.tar.gz": HOST,
    "param/resnet_2gpu_et.json.gz": HOST,
    "tracelens/b200__eager_trace.json.gz": (1, 1, 0.001, (NO_MARKS,)),
    "tracelens/h100__Falconsai_nsfw_image_detection__1016002.json.gz": (1, 1, 0.001, ()),
    "tracelens/h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": (1, 1, 0.001, ()),
    "tracelens/h100__gaunernst_bert-small-uncased__1016001.json.gz": (1, 1, 0.001, ()),
    "tracelens/mi300__resnet_act_checkpoint.json.gz": (1, 3, 0.002, (AHEAD,)),
}


def largest_share_error(breakdown):
    measured, predicted = breakdown["measured"], breakdown["predicted"]
    totals = [max(sum(side.values()), 1) for side in (measured, predicted)]
    return max(abs(measured[key] / totals[0] - predicted[key] / totals[1]) for key in measured)


@pytest.mark.parametrize("place", OUTCOMES)
def test_a_public_trace_replays_or_is_refused_with_the_reason(place):
    outcome, path = OUTCOMES[place], shared("data", "traces", *place.split("/"))
    if isinstance(outcome, str):
        with pytest.raises(InputError, match=re.escape(outcome)):
            read_ranks([path])
        return
    document = to_dict(replay_traces(recording(*place.split("/")), Changes(residual=False)))
    ranks, steps, error, warnings = outcome
    assert [len(rank["steps"]) for rank in document["ranks"]] == [steps] * ranks
    assert max(rank["period_error"] for rank in document["ranks"]) <= error
    assert all(largest_share_error(rank["breakdown"]) <= 0.03 for rank in document["ranks"])
    said = [text for rank in document["ranks"] for text in rank["warnings"]]
    assert len(said) == len(warnings)
    assert all(any(part in text for text in said) for part in warnings)


def test_no_public_trace_is_left_out():
    folder = shared("data", "traces")
    parts = ("hta", "kineto", "param", "tracelens")
    found = {f"{part}/{path.name}" for part in parts for path in (folder / part).iterdir()}
    assert found == set(OUTCOMES)
