"""The report of the SimAI profiles."""

import pytest

from simcore.cli.run import CLOSED_FORMS
from simcore.cli.run_simai import run
from simcore.errors import InputError
from simcore.report.document import encode

WORKLOAD = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 2 vpp: 1 ga: 4 all_gpus: 64 \
checkpoints: 0 checkpoint_initiates: 0 pp_comm: 4096
3
embedding_layer -1 600 ALLREDUCE 50331648 1 NONE 0 1500 NONE 0 100
mlp_layer -1 175084 ALLREDUCE 50331648 87542 NONE 0 87542 NONE 0 100
grads -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1073741824 100
"""
VALUES = {option.name: None for option in CLOSED_FORMS} | {"gpu_type": "H100", "nic_type": "cx7", "tp_overlap": 0.5}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "w.txt"
    file.write_text(WORKLOAD)
    return file


def test_the_report_has_every_row_once_and_shares_that_add_up(path):
    text, document = run(path, "simai-1.6", VALUES)
    assert [layer["name"] for layer in document["layers"]] == ["embedding_layer", "mlp_layer", "grads"]
    assert sum(document["breakdown"].values()) == document["time_ns"] == round(document["simai"]["total_us"] * 1000)
    assert document["compute_ns"] == 600 + 1 + 1500 + 175084 + 2 * 87542 + 3
    assert document["breakdown"]["overlapped_ns"] > 0
    assert document["npus"] == 64
    assert text.startswith("One iteration takes 10.26 ms on 64 GPUs: compute 352.3 us")
    assert encode(document) == encode(run(path, "simai-1.6", VALUES)[1])


def test_the_bandwidth_file_belongs_to_its_profile(path, tmp_path):
    with pytest.raises(InputError, match="--busbw"):
        run(path, "simai-busbw", VALUES)
    with pytest.raises(InputError, match="--busbw"):
        run(path, "simai-1.6", VALUES | {"busbw": "f"})
    file = tmp_path / "busbw.yaml"
    file.write_text("test\nTP:\nallreduce,: 300\nDP:\nallreduce,: 45\nPP:\nbusbw: 47.5\n")
    document = run(path, "simai-busbw", VALUES | {"busbw": str(file)})[1]
    assert [entry["role"] for entry in document["inputs"]] == ["workload", "busbw"]
