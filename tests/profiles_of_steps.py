"""Small profiler traces made to order: a host thread that launches tasks on streams, step after step."""

import json
from dataclasses import dataclass, field

LAUNCH_US, LATENCY_US = 5, 8


@dataclass
class Recorder:
    """Writes Kineto events as a real run would leave them: streams run in order, a synchronisation waits for them."""

    rank: int = 0
    now_us: float = 0.0
    events: list = field(default_factory=list)
    free_us: dict = field(default_factory=dict)
    launched: int = 0
    step: int = 0
    began_us: float = 0.0
    thread: int = 1
    recorded: tuple = (-1, -1, 0.0)
    held_us: dict = field(default_factory=dict)

    def add(self, category, name, start_us, length_us, thread, **args):
        row = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start_us, "dur": length_us}
        self.events.append(row | {"args": args})

    def work(self, length_us, gap_us=0.0):
        """Host time: recorded as an operator, then a pause without any record."""
        self.add("cpu_op", "aten::op", self.now_us, length_us, self.thread)
        self.now_us += length_us + gap_us

    def launch(self, name, length_us, stream=7, after=None):
        """A kernel that starts when it is launched, its stream is free and `after` (another stream) is done."""
        self._call("cudaLaunchKernel")
        self._run(name, length_us, stream, after)
        self.now_us += LAUNCH_US

    def graph(self, *kernels):
        """One launch of several kernels, each as `launch` takes it."""
        self._call("cudaGraphLaunch")
        for kernel in kernels:
            self._run(*kernel)
        self.now_us += LAUNCH_US

    def _call(self, name):
        self.launched += 1
        self.add("cuda_runtime", name, self.now_us, LAUNCH_US, self.thread, correlation=self.launched)

    def _run(self, name, length_us, stream=7, after=None):
        earliest = [self.now_us + LATENCY_US, self.free_us.get(stream, 0.0) + 1, self.held_us.get(stream, 0.0) + 2]
        if after is not None:
            earliest.append(self.free_us.get(after, 0.0) + 2)
        place = {"device": 0, "stream": stream, "correlation": self.launched}
        self.add("kernel", name, max(earliest), length_us, stream, **place)
        self.free_us[stream] = max(earliest) + length_us

    def synchronise(self):
        """cudaDeviceSynchronize: returns 2 us after everything launched is done."""
        end = max(self.now_us, *self.free_us.values()) + 2
        self.add("cuda_runtime", "cudaDeviceSynchronize", self.now_us, end - self.now_us, self.thread, correlation=0)
        self.now_us = end

    def record(self, stream):
        """cudaEventRecord behind what a stream has to do."""
        self._call("cudaEventRecord")
        done_us = max(self.free_us.get(stream, 0.0), self.held_us.get(stream, 0.0))
        self.recorded = self.launched, stream, done_us
        self.now_us += LAUNCH_US

    def hand_on(self, stream, other):
        """cudaStreamWaitEvent: what a stream has to do is done before what another one gets from now on."""
        self.record(stream)
        number, _, done_us = self.recorded
        self._call("cudaStreamWaitEvent")
        self.held_us[other] = max(self.held_us.get(other, 0.0), done_us)
        said = {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": number, "stream": other, "device": 0}
        said |= {"correlation": self.launched, "cuda_sync_kind": "Stream Wait Event"}
        self.add("cuda_sync", "Stream Wait Event", self.now_us, 1, other, **said)
        self.now_us += LAUNCH_US

    def await_record(self):
        """cudaEventSynchronize: returns 2 us after what the event was recorded behind, as a cuda_sync event says."""
        number, stream, done_us = self.recorded
        self.launched += 1
        end = max(self.now_us, done_us) + 2
        self.add(
            "cuda_runtime", "cudaEventSynchronize", self.now_us, end - self.now_us, self.thread,
            correlation=self.launched,
        )  # fmt: skip
        said = {"wait_on_stream": stream, "wait_on_cuda_event_record_corr_id": number, "stream": -1, "device": 0}
        said |= {"correlation": self.launched, "cuda_sync_kind": "Event Sync"}
        self.add("cuda_sync", "Event Sync", self.now_us, end - self.now_us, 9, **said)
        self.now_us = end

    def await_stream(self, stream):
        """cudaStreamSynchronize: returns 2 us after all that a stream was told is done."""
        self.launched += 1
        end = max(self.now_us, self.free_us.get(stream, 0.0), self.held_us.get(stream, 0.0)) + 2
        said = {"correlation": self.launched, "cuda_sync_kind": "Stream Sync", "stream": stream, "device": 0}
        span = self.now_us, end - self.now_us
        self.add("cuda_runtime", "cudaStreamSynchronize", *span, self.thread, correlation=self.launched)
        self.add("cuda_sync", "Stream Sync", *span, stream, **said)
        self.now_us = end

    def annotate(self, name, program):
        """A range around part of a program, as torch.profiler.record_function writes it."""
        began_us = self.now_us
        for operation, *arguments in program:
            getattr(self, operation)(*arguments)
        self.add("user_annotation", name, began_us, self.now_us - began_us, self.thread)

    def on(self, thread, program):
        """Part of a program on another thread, which the first one waits for."""
        self.thread = thread
        for operation, *arguments in program:
            getattr(self, operation)(*arguments)
        self.thread = 1

    def mark(self):
        """End a step and begin the next."""
        self.add("user_annotation", f"ProfilerStep#{self.step}", self.began_us, self.now_us - self.began_us, 1)
        self.step, self.began_us = self.step + 1, self.now_us

    def document(self):
        return {"schemaVersion": 1, "distributedInfo": {"rank": self.rank}, "traceEvents": self.events}

    def content(self):
        return json.dumps(self.document()).encode()


def recorded(program, steps=3, rank=0):
    """A trace of a program: (operation, *arguments) per line, the same every step."""
    recorder = Recorder(rank)
    for _ in range(steps):
        for operation, *arguments in program:
            getattr(recorder, operation)(*arguments)
        recorder.mark()
    return recorder
