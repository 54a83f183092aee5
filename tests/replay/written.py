"""Small pipelined training steps, run and written as the traces of their ranks."""

from pathlib import Path

from simcore.report.timelines.kineto import kineto_traces
from simcore.workload.kineto_reader import read_kineto

MODEL = {
    "hidden_size": 512, "num_attention_heads": 8, "ffn_hidden_size": 1024, "seq_length": 256, "vocab_size": 1024,
    "max_position_embeddings": 256, "tensor_model_parallel_size": 2,
}  # fmt: skip


def step(folder: Path, *, layers=4, pp=2, dp=4, micro_batches=4, **more) -> str:
    """The file of a generator's specification."""
    sizes = {
        "num_layers": layers, "pipeline_model_parallel": pp, "world_size": 2 * pp * dp,
        "global_batch": dp * micro_batches, "gpu_type": "H100",
    }  # fmt: skip
    lines = [
        f"  {name}: {str(value).lower() if value is True else value}" for name, value in (MODEL | sizes | more).items()
    ]
    file = folder / f"step_{layers}_{pp}_{dp}_{micro_batches}.yaml"
    file.write_text("\n".join(["generator: megatron", "options:", *lines, ""]))
    return str(file)


def machine(folder: Path, *, pp=2, dp=4) -> str:
    """A switch for every group: tensor, data, pipeline."""
    file = folder / f"machine_{dp}_{pp}.yaml"
    file.write_text(
        f"name: machine\ntopology: [Switch, Switch, Switch]\nnpus_count: [2, {dp}, {pp}]\n"
        "bandwidth: [450.0, 100.0, 50.0]\nlatency: [500.0, 1000.0, 2000.0]\n"
    )
    return str(file)


def traces(report):
    """What replay reads of the written run."""
    return [read_kineto(content, f"rank{rank}.json") for rank, content in kineto_traces(report).values()]
