"""AICB's command line options as data: parsed, checked, and what AICB derives from them."""

from __future__ import annotations  # types are read as texts (simcore.generate.build)

from dataclasses import dataclass

from simcore.errors import InputError, Location, Problem, Problems
from simcore.library import table

FRAMES = {"megatron": "Megatron", "deepspeed": "DeepSpeed", "deepseek": "DeepSeek"}
"""Our generators and AICB's names of their frameworks."""


@dataclass(frozen=True, slots=True)
class Options:
    """AICB's options under AICB's names, with AICB's defaults (its `utils.py`)."""

    frame: str = "Megatron"
    gpu_type: str | None = None
    model_name: str | None = None
    world_size: int = 1
    tensor_model_parallel_size: int = 1
    pipeline_model_parallel: int = 1
    expert_model_parallel_size: int = 1
    context_parallel_size: int = 1
    pp_rank: int = -1
    global_batch: int = 4
    micro_batch: int = 1
    epoch_num: int = 1
    dtype: str = "bfloat16"
    computation_enable: bool = False
    workload_only: bool = False
    hidden_size: int = 1024
    num_layers: int = 24
    seq_length: int = 2048
    num_attention_heads: int | None = None
    vocab_size: int = 32000
    max_position_embeddings: int = 4096
    ffn_hidden_size: int | None = None
    add_bias_linear: bool = False
    use_flash_attn: bool = False
    swiglu: bool = False
    enable_sequence_parallel: bool = False
    use_distributed_optimizer: bool = False
    make_vocab_size_divisible_by: int = 128
    recompute_activations: bool = False
    aiob_enable: bool = False
    comp_filepath: str | None = None
    moe_enable: bool = False
    num_experts: int = 1
    moe_router_topk: int = 1
    moe_grouped_gemm: bool = False
    n_dense_layers: int = 3
    n_shared_expert: int = 2
    qk_rope_dim: int = 64
    qk_nope_dim: int = 128
    q_lora_rank: int = 1536
    kv_lora_rank: int = 512
    v_head_dim: int = 128
    stage: int = 3
    amp_enabled: bool = False
    reduce_bucket_size: int = 500_000_000
    allgather_bucket_size: int = 500_000_000
    contiguous_gradients: bool = False
    param_persistence_threshold: int = 100_000
    model_persistence_threshold: int = (1 << 63) - 1
    max_live_parameters: int = 1_000_000_000
    prefetch_bucket_size: int = 1_000_000_000

    @property
    def tp(self) -> int:
        """Ranks that split every matrix."""
        return self.tensor_model_parallel_size

    @property
    def ep(self) -> int:
        """Ranks that share the experts."""
        return self.expert_model_parallel_size

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return self.pipeline_model_parallel

    @property
    def dp(self) -> int:
        """Replicas; expert and context parallelism do not reduce them in AICB."""
        return self.world_size // (self.tp * self.pp)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step: floor, so a remainder of the global batch is dropped and 0 gives an empty step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def stage_layers(self) -> int:
        """Transformer layers of a stage: floor, so a remainder is dropped."""
        return self.num_layers // self.pp

    @property
    def heads(self) -> int:
        """Attention heads; as many as layers of the whole model when not given."""
        return self.num_layers if self.num_attention_heads is None else self.num_attention_heads

    @property
    def query_size(self) -> int:
        """Width of the query projection: the hidden size rounded down to whole heads."""
        return self.hidden_size // self.heads * self.heads if self.heads else 0

    @property
    def ffn(self) -> int:
        """Width of the feed-forward layer: 4h, gated two thirds of it in multiples of 64 (10880, not LLaMA's 11008)."""
        if self.ffn_hidden_size is not None:
            return self.ffn_hidden_size
        return int((4 * self.hidden_size * 2 / 3) / 64) * 64 if self.swiglu else 4 * self.hidden_size

    @property
    def padded_vocab(self) -> int:
        """Vocabulary padded so that every rank holds a multiple of `make_vocab_size_divisible_by`."""
        multiple = self.make_vocab_size_divisible_by * self.tp
        return -(-self.vocab_size // multiple) * multiple

    @property
    def activation_bytes(self) -> int:
        """Bytes of one micro-batch's hidden states, always two bytes an element whatever `dtype` says."""
        return 2 * self.micro_batch * self.seq_length * self.hidden_size

    @property
    def computes(self) -> bool:
        """Whether the operation list names matrix multiplications."""
        return self.computation_enable or self.aiob_enable


_LEAST = table(__file__, "least.txt")
ASSERTION = "AICB stops here with an assertion"


def refused(option: str, message: str, expected: str = "", found: object = "", hint: str = ASSERTION) -> InputError:
    """What AICB does not take."""
    return InputError.at(f"--{option}", message, expected=expected, found=str(found), hint=hint, field=option)


def check(options: Options) -> None:
    """Raise InputError for what AICB's own option checks refuse, every problem at once."""
    with Problems() as problems:
        for name, least in _LEAST:
            value, expected = getattr(options, name), f"a whole number of at least {least}"
            if value is not None and value < int(least):
                problems.add(Problem(Location(f"--{name}"), "the value is too small", expected, str(value), field=name))
    ranks, experts, of_ranks = options.tp * options.pp, options.num_experts, "the product of tp and pp"
    alone = options.moe_enable and not options.enable_sequence_parallel
    rules = (
        (options.world_size % ranks, "world_size", f"the world size must be divisible by {of_ranks}",
         f"a multiple of {ranks}", options.world_size),
        (alone, "enable_sequence_parallel", "experts need sequence parallelism", "", "--moe_enable without it"),
        (options.ep > 1 and experts % options.ep, "num_experts",
         "the number of experts must be divisible by the expert parallel size", f"a multiple of {options.ep}", experts),
        (options.dtype == "float16" and options.ep > 1, "dtype",
         "expert parallelism is not supported with float16", "", "float16"),
        (options.dtype != "bfloat16" and options.moe_grouped_gemm, "dtype",
         "grouped matrix multiplications need bfloat16", "", options.dtype),
    )  # fmt: skip
    with Problems() as problems:
        for broken, *said in rules:
            if broken:
                problems.add(refused(*said).problems[0])
