"""What do the cores of a wafer move in a layer with experts: all experts once, and a copy in each half of the wafer?

With the name of a picture (`python examples/wafer_layers.py wafer_layers.png`) it draws the second one.
"""

import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np

from simcore.cli import main as simcore
from simcore.generate.wse.source import load
from simcore.report.plots import save
from simcore.report.wafer_figure import Moves, layers_of, moves_figure, node_bytes

MODEL = {
    "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
    "moe_intermediate_size": 128, "num_hidden_layers": 3, "first_k_dense_replace": 1, "num_attention_heads": 8,
    "n_routed_experts": 32, "n_shared_experts": 1, "num_experts_per_tok": 4, "q_lora_rank": 64, "kv_lora_rank": 32,
    "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "vocab_size": 4000,
}  # fmt: skip
SYSTEM = {
    "num_nodes": 16, "node_grid": [4, 4], "core_grid": [2, 2], "dp_attn": 2, "tp_attn": 4, "sp": 2, "pp": 1,
    "tp_ffn": 1, "n_redundant_shared_exp": 2, "expert_workload_model": "uniform", "moe_comm": "alltoall",
}  # fmt: skip
LAYER, NODES, CORES = "decode2", 16, 4


def moved(copies: int) -> Moves:
    """Bytes from core to core in the layer, with so many copies of all experts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(MODEL))
        (folder / "system.json").write_text(json.dumps({"decode": SYSTEM | {"dp_ffn": copies, "ep": NODES // copies}}))
        words = f"--model_config {folder}/config.json --system_config {folder}/system.json --bsz 16 --prefill_len 64"
        more = f"--layers {LAYER} --iter decode0 -o {folder}/output -q"
        with redirect_stdout(io.StringIO()):  # it counts the instructions
            status = simcore(["generate", "wse", "traces", *words.split(), *more.split()])
        if status:
            raise SystemExit(status)
        return layers_of(load(folder / "output" / "traces", "decode0").steps[0])[LAYER]


def main() -> str:
    """Print what crosses between the halves of the wafer; draw the layer if a picture is named."""
    layers = {copies: moved(copies) for copies in (1, 2)}
    lines = ["dp_ffn  bytes in all  between halves"]
    for copies, moves in layers.items():
        between = node_bytes(moves, NODES, CORES)
        half = np.arange(NODES) < NODES // 2
        lines.append(f"{copies:6}  {between.sum():12,}  {between[half != half[:, None]].sum():14,}")
    text = "\n".join(lines)
    if len(sys.argv) > 1:
        figure = moves_figure(layers[2], f"decode0, {LAYER}, two copies of all experts", (4, 4), (2, 2))
        save(figure, Path(sys.argv[1]), text)
    return text


if __name__ == "__main__":
    print(main())
