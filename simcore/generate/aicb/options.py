"""AICB's command line options as data: parsed, checked, and what AICB derives from them."""

from __future__ import annotations

from dataclasses import dataclass

from simcore.errors import Location, Problem, Problems

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


POSITIVE = (
    "world_size",
    "tensor_model_parallel_size",
    "pipeline_model_parallel",
    "expert_model_parallel_size",
    "micro_batch",
    "make_vocab_size_divisible_by",
)
NOT_NEGATIVE = ("global_batch", "num_layers", "hidden_size", "seq_length", "vocab_size", "num_experts", "epoch_num")


def divides(problems: Problems, option: str, value: int, divisor: int, what: str, by: str) -> None:
    """Note a problem of `--option` unless `value` (called `what`) is a multiple of `divisor` (called `by`)."""
    if value % divisor:
        problems.add(
            Problem(
                Location(f"--{option}"),
                f"{what} must be divisible by {by}",
                expected=f"a multiple of {divisor}",
                found=str(value),
                hint="AICB stops here with an assertion",
                field=option,
            )
        )


def check(options: Options) -> None:
    """Raise InputError for what AICB's own option checks refuse, every problem at once."""
    with Problems() as problems:
        _check_ranges(options, problems)
    with Problems() as problems:
        what = "the world size"
        divides(problems, "world_size", options.world_size, options.tp * options.pp, what, "the product of tp and pp")
        if options.moe_enable and not options.enable_sequence_parallel:
            _refuse(
                problems, "enable_sequence_parallel", "experts need sequence parallelism", "--moe_enable without it"
            )
        if options.ep > 1:
            divides(
                problems,
                "num_experts",
                options.num_experts,
                options.ep,
                "the number of experts",
                "the expert parallel size",
            )
        if options.dtype == "float16" and options.ep > 1:
            _refuse(problems, "dtype", "expert parallelism is not supported with float16", "float16")
        if options.dtype != "bfloat16" and options.moe_grouped_gemm:
            _refuse(problems, "dtype", "grouped matrix multiplications need bfloat16", options.dtype)


def _check_ranges(options: Options, problems: Problems) -> None:
    heads_given = () if options.num_attention_heads is None else ("num_attention_heads",)
    for name in (*POSITIVE, *heads_given, *NOT_NEGATIVE):
        least = 0 if name in NOT_NEGATIVE else 1
        if getattr(options, name) < least:
            found = str(getattr(options, name))
            expected = f"a whole number of at least {least}"
            problems.add(Problem(Location(f"--{name}"), "the value is too small", expected, found, field=name))


def _refuse(problems: Problems, option: str, message: str, found: str) -> None:
    problems.add(
        Problem(Location(f"--{option}"), message, found=found, hint="AICB stops here with an assertion", field=option)
    )
