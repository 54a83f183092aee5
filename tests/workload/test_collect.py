"""The script that collects traces calls PyTorch's profiler as it is documented (a stand-in takes the calls)."""

import sys
from types import SimpleNamespace

from tools.collect_traces import collect


def test_both_traces_of_a_rank_are_asked_for_and_steps_are_counted(tmp_path, monkeypatch):
    calls = []

    class Observer:
        def register_callback(self, path):
            calls.append(("host", path))

        def unregister_callback(self):
            calls.append(("done",))

    class Profile:
        def __init__(self, *, schedule, on_trace_ready, **options):
            self.schedule, self.ready, self.options = schedule, on_trace_ready, options

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.ready(SimpleNamespace(export_chrome_trace=lambda path: calls.append(("kineto", path))))

        def step(self):
            calls.append(("step",))

    activity = SimpleNamespace(CPU="cpu", CUDA="cuda")
    made = {"ExecutionTraceObserver": Observer, "ProfilerActivity": activity, "profile": Profile, "schedule": dict}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(profiler=SimpleNamespace(**made)))
    monkeypatch.setitem(sys.modules, "torch.profiler", SimpleNamespace(**made))
    with collect(str(tmp_path / "t"), 3) as step:
        step()
    host, kineto = (str(tmp_path / "t" / f"{name}.3.json") for name in ("host", "kineto"))
    assert calls == [("host", host), ("step",), ("kineto", kineto), ("done",)]
