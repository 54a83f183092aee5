"""How much of a GPU is in use? Three kernels of a made-up trace: blocks per multiprocessor, and who runs at once.

A kernel with less than one block per multiprocessor leaves some idle; kernels that run at once add up, to 1 at most.
"""

import io
import json
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from simcore.cli import main as simcore

KERNELS = ((0, 40, 7, 0.5), (60, 20, 7, 3.0), (60, 10, 8, 0.25))
"""Start and length (us), stream, blocks per multiprocessor."""


def trace() -> dict[str, object]:
    """A profiler trace of a step: each kernel with its launch."""
    events = []
    for number, (start, length, stream, blocks) in enumerate(KERNELS):
        launch = {"ph": "X", "pid": 1, "tid": 1, "name": "cudaLaunchKernel", "cat": "cuda_runtime"}
        kernel = {"ph": "X", "pid": 0, "tid": stream, "name": f"kernel {number}", "cat": "kernel"}
        said = {"correlation": number, "stream": stream, "blocks per SM": blocks}
        events.append(launch | {"ts": number, "dur": 1, "args": {"correlation": number}})
        events.append(kernel | {"ts": start, "dur": length, "args": said})
    return {"traceEvents": events}


def main() -> str:
    """Print the share in use over a step as replayed, and what the kernels say."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as said:
        (Path(folder) / "trace.json").write_text(json.dumps(trace()))
        simcore(["replay", f"{folder}/trace.json", "--json", "-q"])
    used = json.loads(said.getvalue())["ranks"][0]["utilisation"]
    measured, played = (sum(used[f"sm_{which}"]) * used["bin_ns"] / 1e3 for which in ("measured", "predicted"))
    return (
        f"multiprocessors in use: {measured:.1f} us of the step, as played {played:.1f} us\n"
        f"closed form: 0.5 x 40 us + 1 x 20 us (0.25 beside it are too many) = {0.5 * 40 + 20:.1f} us"
    )


if __name__ == "__main__":
    print(main())
