"""Random options through the generator that repeats AICB byte for byte, and through a naive model of its rows."""

from random import Random

import pytest

from simcore.errors import InputError
from simcore.generate.aicb.options import Options
from simcore.generate.aicb.training import training_text
from tests.oracles import aicb
from tests.oracles.packets import RefusalError

NAMES = "Emb layernorm atten_qkv atten_flash layernorm2 mlp_linear_1 param_time logit_time"
SECTIONS = (*NAMES.split(), *aicb.MLA)


def draw(seed):
    """Options that AICB takes, and some that it does not."""
    draw = Random(seed)  # noqa: S311 - a seed gives the same case everywhere
    tp, pp, ep, dp = (draw.choice(sizes) for sizes in ((1, 1, 2, 4, 8), (1, 1, 2, 3), (1, 2, 4, 8), (1, 2, 3, 8, 16)))
    frame = draw.choice(("Megatron", "Megatron", "DeepSeek"))
    options = {
        "frame": frame, "tensor_model_parallel_size": tp, "pipeline_model_parallel": pp,
        "expert_model_parallel_size": ep, "world_size": tp * pp * dp + draw.choice((0,) * 15 + (1,)),
        "global_batch": draw.randint(0, 4) * dp + draw.randint(0, 3), "micro_batch": draw.choice((1, 1, 2, 3)),
        "num_layers": draw.randint(0, 9), "vocab_size": draw.choice((32000, 50257, 1)),
        "hidden_size": 8 * draw.choice((16, 17, 96, 128)), "seq_length": draw.choice((1, 7, 1024)),
        "num_attention_heads": draw.choice((8, 16, 24, 7 if tp == 1 else 8)),
        "num_experts": ep * draw.choice((1, 2, 7)), "moe_router_topk": draw.choice((1, 2, 5)),
        "n_dense_layers": draw.choice((0, 1, 3, 12)), "n_shared_expert": draw.choice((0, 1, 2)),
        "q_lora_rank": draw.choice((1, 24)), "kv_lora_rank": draw.choice((8, 512)),
        "make_vocab_size_divisible_by": draw.choice((1, 128)),
    }  # fmt: skip
    switches = ("swiglu", "enable_sequence_parallel", "add_bias_linear", "recompute_activations", "aiob_enable")
    options |= {name: draw.random() < 0.5 for name in switches}
    options["moe_enable"] = draw.random() < (0.5 if options["enable_sequence_parallel"] else 0.03)
    if frame == "DeepSeek" and not options["moe_enable"]:
        options["n_dense_layers"] = 12
    if draw.random() < 0.5:
        options["ffn_hidden_size"] = 8 * draw.choice((8, 40, 179))
    times = {name: (draw.randint(0, 4000) / 8, draw.randint(0, 4000) / 8) for name in SECTIONS if draw.random() < 0.8}
    return options, times or {"Emb": (1, 2)}


@pytest.mark.parametrize("seed", range(80))
def test_every_byte_is_that_of_the_naive_model(seed, tmp_path):
    options, times = draw(seed)
    file = tmp_path / "times.txt"
    lines = [f"{name}:\n    time_gpu_min: {least}\n    time_gpu_avg: {mean}\n" for name, (least, mean) in times.items()]
    file.write_text("train_iter:10\n" + "".join(lines))
    try:
        expected = aicb.File(options, times).lines()
    except RefusalError:
        with pytest.raises(InputError):
            training_text(Options(**options, comp_filepath=str(file)))
        return
    assert str(training_text(Options(**options, comp_filepath=str(file)))).splitlines() == expected
