"""Where in the program a kernel comes from."""

import json

from simcore.replay.run import Changes
from simcore.replay.session import replay_traces
from simcore.replay.views.work import Origin, origin_of
from simcore.workload.kineto_reader import read_kineto
from tests.profiles_of_steps import Recorder


def test_a_backward_kernel_comes_from_the_module_of_its_forward_operator():
    """Autograd's thread has no modules; a sequence number says whose gradient it computes."""
    recorder = Recorder()
    for number, module in enumerate(("embed", "head")):
        start_us = recorder.now_us
        recorder.launch(f"forward_{module}", 20)
        recorder.add("cpu_op", "aten::linear", start_us, 5, 1, **{"Sequence number": number, "Fwd thread id": 0})
        recorder.add("python_function", f"nn.Module: {module}", start_us, 5, 1)
    for number, module in ((1, "head"), (0, "embed")):
        start_us = recorder.now_us
        recorder.on(2, [("launch", f"backward_{module}", 40)])
        recorder.add("cpu_op", "LinearBackward0", start_us, 5, 2, **{"Sequence number": number, "Fwd thread id": 1})
    recorder.synchronise()
    ((step,),) = replay_traces([read_kineto(json.dumps(recorder.document()).encode(), "made.json")], Changes()).steps
    for module in ("embed", "head"):
        assert origin_of(step, f"forward_{module}").module == module
        found = origin_of(step, f"backward_{module}")
        assert (found.operator, found.module) == ("LinearBackward0", module)


def test_operators_that_share_a_number_and_no_module_come_from_themselves():
    """Of no length, and of a thread whose numbers begin anew: each could be the other's forward operator."""
    recorder = Recorder()
    recorder.launch("kernel", 20)
    for start_us in (0, 0, 1):
        recorder.add("cpu_op", "aten::add", start_us, 4 * (start_us < 1), 1, **{"Sequence number": 3})
    recorder.add("cpu_op", "aten::mul", 0, 0, 1, **{"Sequence number": 3})
    recorder.synchronise()
    ((step,),) = replay_traces([read_kineto(json.dumps(recorder.document()).encode(), "made.json")], Changes()).steps
    assert origin_of(step, "kernel") == Origin("aten::add", "", "")
