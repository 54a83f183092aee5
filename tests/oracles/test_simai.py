"""Random workloads through SimAI's closed forms and through a naive model that knows nothing of simcore."""

from random import Random

import pytest

from simcore.errors import InputError
from tests.cost.simai.test_simai import PHASES, evaluated
from tests.oracles import simai
from tests.oracles.packets import RefusalError

SIZES = (0, 1, 2, 4095, 1048575, 1048576, (1 << 24) + 1, 50331655, 1527807123, 12485679129, (1 << 34) - 1, 1 << 34)
COMPUTE_NS = (0, 1, 556000, 16777217, 1527879415)
WORDS = ("NONE", *(kind + group for kind in simai.KINDS for group in ("", "", "_EP", "_DP_EP")))


def draw(seed):
    """Any parallelism on any servers: groups that do not fill one, NICs that are too few, files with gaps."""
    draw = Random(seed)  # noqa: S311 - a seed gives the same case everywhere
    tp, pp, ep = draw.choice((1, 2, 4, 5, 8, 12, 16, 64)), draw.choice((1, 2, 3)), draw.choice((1, 2, 3, 8, 32))
    servers = draw.choice((1, 4, 8, 8, 36, 72))
    run = {"g": tp * pp * draw.choice((1, 2, 3, 16, 128)) + draw.choice((0, 0, 1)), "g_p_s": servers}
    run |= {name: draw.choice((0, 0.1, 0.25, 0.99, 1)) for name in ("dp_o", "tp_o", "ep_o", "pp_o")}
    case = {"id": str(seed), "run": run, "workload": {"layers": [_row(draw) for _ in range(draw.randint(1, 4))]}}
    loop = draw.choice(("HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD"))
    sizes = f"model_parallel_NPU_group: {tp} ep: {ep} pp: {pp} vpp: {draw.randint(1, 3)} ga: {draw.randint(1, 9)}"
    header = f"{loop} {sizes} pp_comm: {draw.choice((0, 8388608, 12345679))}"
    last = len(case["workload"]["layers"]) - 1
    if last and "BCKWD" in loop:
        header += f" checkpoints: 1 {draw.randrange(last)} checkpoint_initiates: 1 {last}"
    case["workload"]["header"] = header
    if draw.random() < 0.4:
        keys = ("allreduce", "allgather", "reducescatter", "alltoall")
        values = [f"{key},: {draw.choice((300, 45, 0.3, 1000.1))}" for _ in range(3) for key in keys]
        sections = ["TP:", *values[:4], "DP:", *values[4:8], "EP:", *values[8:], "PP:", "busbw: 47.3"]
        return case | {"busbw_yaml": "\n".join(["test", *sections])}
    run |= {"n_p_s": draw.choice((servers, servers, 64 * servers, 1))}
    run |= draw.choice(({"nv": draw.choice((25.5, 360))}, {"g_type": draw.choice(list(simai.NVLINK))}))
    run |= draw.choice(({"nic": draw.choice((0.7, 12.25))}, {"nic_t": draw.choice(list(simai.NIC))}))
    return case


def _row(draw):
    columns = {phase: [draw.choice(COMPUTE_NS), draw.choice(WORDS), draw.choice(SIZES)] for phase in PHASES}
    return {"name": draw.choice(("embedding_layer", "row")), "update": 1} | columns


@pytest.mark.parametrize("seed", range(60))
def test_every_figure_is_that_of_the_naive_model(seed, tmp_path):
    case = draw(seed)
    try:
        expected = simai.Simulation(case).run()
    except RefusalError:
        expected = None
    try:
        result = evaluated(case, tmp_path)
    except InputError:
        assert expected is None, "what the original prints"
        return
    if expected is None:
        assert result.warnings, "not a word about garbage"
        return
    rows = [
        {(short, figure): row[phase][f"{figure}_ns"] for short, phase in PHASES.items()
         for figure in simai.FIGURES} for row in result.layers
    ]  # fmt: skip
    assert rows == expected["rows"]
    assert {name: getattr(result.summary, name) for name in expected["summary"]} == pytest.approx(expected["summary"])
