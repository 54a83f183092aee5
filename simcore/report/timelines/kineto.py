"""A simulated run in the form in which PyTorch's profiler records a real one: a Kineto trace of every rank.

A host that runs ahead launches the kernels in the order of the program; streams wait for each other by events; the step
ends with a synchronisation. `simcore replay` reads it, and predicts the run.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from simcore.errors import InputError
from simcore.report.model import Report
from simcore.report.timelines.chrome import microseconds
from simcore.report.timelines.program import COMPUTE, Iterations, Kernel, Said, programs
from simcore.report.timelines.selection import View
from simcore.workload.model import Group

COMPUTE_STREAM, OTHER_STREAMS = 7, 16
# PyTorch's and NCCL's names of operations, and Megatron-LM's of groups
OPERATIONS = {
    "all_reduce": ("allreduce", "AllReduce_Sum"),
    "all_gather": ("_allgather_base", "AllGather"),
    "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter_Sum"),
    "all_to_all": ("all_to_all", "SendRecv"),
    "send": ("send", "SendRecv"),
    "recv": ("recv", "SendRecv"),
}
GROUPS = {
    Group.TP: "TENSOR_MODEL_PARALLEL_GROUP",
    Group.DP: "DATA_PARALLEL_GROUP",
    Group.EP: "EXPERT_MODEL_PARALLEL_GROUP",
    Group.DP_EP: "EXPERT_DATA_PARALLEL_GROUP",
    Group.CP: "CONTEXT_PARALLEL_GROUP",
    Group.PP: "PIPELINE_MODEL_PARALLEL_GROUP",
}


def kineto_archive(report: Report, view: View) -> bytes:
    """A tar archive of `kineto_traces`; equal for equal runs."""
    if view.end_ns - view.start_ns < report.timeline.time_ns:
        message = "a trace of ranks holds the whole run: kernels wait for what lies outside a part of it"
        raise InputError.at("--timeline", message, expected="neither --window nor --iteration")
    traces, buffer = kineto_traces(report), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for npu_class in view.classes:
            rank, content = traces[npu_class]
            member = tarfile.TarInfo(f"rank{rank}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def kineto_traces(report: Report) -> dict[int, tuple[int, bytes]]:
    """Class of NPUs -> its first rank and that rank's trace; errors as `programs`."""
    world, about = report.timeline.npus, report.provenance()
    return {number: (rank, _trace(rank, iterations, world, about)) for number, rank, iterations in programs(report)}


def _trace(rank: int, iterations: Iterations, world: int, about: str) -> bytes:
    writer = _Writer(rank)
    for index, ((start_ns, end_ns), kernels) in enumerate(iterations):
        writer.step(index, start_ns, end_ns, kernels)
    head = {
        "schemaVersion": 1,
        "simulated": about,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "deviceProperties": [{"id": 0, "name": "simulated"}],
    }
    events = ",\n".join(writer.events)
    return f'{json.dumps(head)[:-1]}, "traceEvents": [\n{events}\n]}}\n'.encode()


@dataclass(slots=True)
class _Writer:
    """Events of one rank; the host's clock `now_ns` moves on by one for every call."""

    rank: int
    events: list[str] = field(default_factory=list)
    now_ns: int = 0
    correlation: int = 0
    streams: dict[str, int] = field(default_factory=lambda: {COMPUTE: COMPUTE_STREAM})
    opened: list[tuple[str, int]] = field(default_factory=list)

    def step(self, index: int, start_ns: int, end_ns: int, kernels: tuple[Kernel, ...]) -> None:
        """One step: its launches, then the wait for all of it."""
        self.now_ns, recorded = start_ns, dict[int, int]()
        sources = {source for kernel in kernels for source in kernel.waits}
        for at, kernel in enumerate(kernels):
            self._enter(kernel.ranges)
            for source in kernel.waits:
                self._wait(kernel.stream, kernels[source].stream, recorded[source])
            self._launch(kernel)
            if at in sources:
                recorded[at] = self._call("cudaEventRecord", self._stamp())
        self._enter(())
        self._call("cudaDeviceSynchronize", (self.now_ns, max(end_ns, self.now_ns)))
        self._range(f"ProfilerStep#{index}", start_ns, end_ns)

    def _stamp(self, at_most_ns: int = 1 << 62) -> tuple[int, int]:
        """The next nanosecond of the host."""
        start_ns = min(self.now_ns, at_most_ns)
        self.now_ns += 1
        return start_ns, start_ns + 1

    def _enter(self, ranges: tuple[str, ...]) -> None:
        """Close and open ranges until those of the next kernel are open."""
        same = 0
        while same < min(len(ranges), len(self.opened)) and self.opened[same][0] == ranges[same]:
            same += 1
        while len(self.opened) > same:
            name, start_ns = self.opened.pop()
            self._range(name, start_ns, self.now_ns)
        self.opened += [(name, self.now_ns) for name in ranges[same:]]

    def _range(self, name: str, start_ns: int, end_ns: int) -> None:
        self._event("user_annotation", name, "1", (start_ns, end_ns))

    def _call(self, name: str, span: tuple[int, int]) -> int:
        self.correlation += 1
        self._event("cuda_runtime", name, "1", span, {"correlation": self.correlation})
        return self.correlation

    def _stream(self, name: str) -> int:
        return self.streams.setdefault(name, OTHER_STREAMS + len(self.streams))

    def _wait(self, stream: str, source: str, record: int) -> None:
        """A stream waits for an event recorded on another one."""
        if stream == source:
            return
        span = self._stamp()
        arguments = {
            "correlation": self._call("cudaStreamWaitEvent", span),
            "cuda_sync_kind": "Stream Wait Event",
            "stream": self._stream(stream),
            "wait_on_stream": self._stream(source),
            "wait_on_cuda_event_record_corr_id": record,
        }
        self._event("cuda_sync", "Stream Wait Event", str(self._stream(stream)), span, arguments)

    def _launch(self, kernel: Kernel) -> None:
        correlation = self._call("cudaLaunchKernel", span := self._stamp(kernel.start_ns))
        stream = self._stream(kernel.stream)
        arguments: dict[str, object] = {"device": 0, "stream": stream, "correlation": correlation}
        name = kernel.name
        if kernel.said is not None:
            name = f"ncclDevKernel_{OPERATIONS[kernel.said.operation][1]}(ncclDevKernelArgsStorage<4096ul>)"
            arguments |= _said(kernel.said)
        start_ns = max(kernel.start_ns, span[0])
        self._event("kernel", name, str(stream), (start_ns, max(kernel.end_ns, start_ns)), arguments)

    def _event(
        self, category: str, name: str, thread: str, span: tuple[int, int], args: Mapping[str, object] | None = None
    ) -> None:
        more = f',"args":{json.dumps(args)}' if args else ""
        times = f'"ts":{microseconds(span[0])},"dur":{microseconds(span[1] - span[0])}'
        head = f'"ph":"X","cat":"{category}","name":{json.dumps(name)},"pid":{self.rank},"tid":{thread}'
        self.events.append(f"{{{head},{times}{more}}}")


def _said(said: Said) -> dict[str, object]:
    """NCCL's arguments as the profiler writes them; sizes are counted in bytes."""
    pair = {"Src Rank": said.source, "Dst Rank": said.destination} if said.source >= 0 else {}
    return {
        "Collective name": OPERATIONS[said.operation][0],
        "In msg nelems": said.size_bytes,
        "dtype": "Byte",
        "Group size": len(said.ranks),
        "Process Group Name": str(said.group),
        "Process Group Description": GROUPS[said.group],
        "Process Group Ranks": str(list(said.ranks)),
        **pair,
    }
