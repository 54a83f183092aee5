"""Laws between the closed forms of `simcore.cost` and what runs workloads row by row."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simcore.compute.accelerators import accelerator
from simcore.cost.played import engine_ns, program, run_ns
from simcore.cost.predict import part_times_ns, predict
from simcore.cost.systems import CLUSTERS, Software
from simcore.generate.durations import roofline
from simcore.model.plan import ENDS, Plan
from simcore.model.rows import pipeline_workload
from simcore.model.shape import Experts, Model
from simcore.model.steps import Axis
from simcore.workload.loops import schedules, timing

SELENE = CLUSTERS["selene"]
GPT = Model("gpt", 8, 2048, 16, 8192, 32000, gated=False, tied=True, positions=1024, norm="layer")
LLAMA = Model("llama", 8, 2048, 16, 5632, 32000, kv_heads=4)
MIXED = Model("mixed", 8, 1024, 16, 4096, 32000, experts=Experts(4, 2, 2048, 1024, 2))
AHEAD = replace(MIXED, mtp_layers=1)
SIX = replace(MIXED, layers=4, hidden=1536, heads=12, experts=Experts(6, 2, 1536))
T5 = replace(LLAMA, layers=4, encoder_layers=4, relative_positions=32)
TWO_CHUNKS = {"zb-v", "dualpipe"}


@st.composite
def strategies(draw):
    """A small step, uneven stages and ends without layers included."""
    name, pp = draw(st.sampled_from(schedules.names())), draw(st.sampled_from([1, 2, 4]))
    name = name if pp > 1 else "1f1b"
    tp, dp, ep = draw(st.sampled_from([(1, 1, 1), (2, 2, 2), (4, 2, 1), (4, 4, 2), (2, 4, 4), (1, 8, 2)]))
    chunks = 2 if name in TWO_CHUNKS else draw(st.sampled_from([2, 3])) if name == "interleaved" else 1
    count = pp * draw(st.sampled_from([2, 3, 5])) if name == "interleaved" else 2 * draw(st.integers(pp, 2 * pp))
    model = draw(
        st.sampled_from([replace(GPT, layers=15), replace(LLAMA, layers=17), replace(MIXED, layers=13), AHEAD, T5])
    )
    parts, alone = pp * (1 if name == "dualpipe" else chunks), draw(st.sampled_from([0, 0, 1, 2]))
    if parts > ENDS and alone and not model.encoder_layers:
        model = replace(model, layers=parts - alone)
    assume(model.depth >= parts - alone)
    zero = draw(st.integers(0, 3))
    return model, Plan.of(
        1024,
        count * dp,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep if model.experts else 1,
        schedule=name,
        cp=draw(st.sampled_from([1, 2])),
        context=draw(st.sampled_from(["gather", "ring", "all_to_all"])),
        expert_tp=draw(st.sampled_from([1, tp])),
        virtual_stages=chunks,
        sequence_parallel=bool(model.experts) or draw(st.booleans()),
        zero=zero,
        shard=2 if zero and dp > 1 and draw(st.booleans()) else 0,
        overlap=draw(st.booleans()),
        overlap_pipeline=draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        recompute_layers=draw(st.sampled_from([0, 1])),
        fused_attention=draw(st.booleans()),
        lora_rank=draw(st.sampled_from([0, 0, 8])),
        frozen=draw(st.sampled_from([(), (), ("embedding", "linear_fc1")])),
        offload=draw(st.sampled_from([(), (), ("activations", "weights"), ("optimizer",)])),
        offload_layers=draw(st.sampled_from([0, 2])),
    )


@settings(max_examples=100, deadline=None)
@given(strategies(), st.sampled_from(["selene", "vtrain-cluster", "h100", "gb200"]))
def test_the_engine_takes_as_long_for_a_step_as_predicted(asked, system):
    """With the collectives of tensor, context, expert and data parallelism, in all rows: what ends it is rounded up."""
    model, plan = asked
    more_ns = engine_ns(model, plan, CLUSTERS[system]) - predict(model, plan, CLUSTERS[system]).step_s * 1e9
    assert -1 < more_ns < 4


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([name for name in schedules.names() if name != "interleaved"]),
    st.sampled_from([(2, 1, 3), (2, 2, 3), (4, 1, 3), (4, 2, 5), (4, 1, 6), (6, 2, 3)]),
    st.integers(0, 3),
    st.integers(0, 1),
)
def test_stages_that_nodes_cut_wait_for_the_sums_of_their_own_replicas(name, degrees, more, zero):
    """Replicas of some stages share a node: the slowest sum behind the pipeline is up to 9 % of a step more."""
    pp, tp, dp = degrees
    model = replace(LLAMA, layers=2 * pp + more)
    plan = Plan.of(1024, 2 * pp * dp, tp=tp, pp=pp, dp=dp, schedule=name, zero=zero)
    more_ns = engine_ns(model, plan, CLUSTERS["h100"]) - predict(model, plan, CLUSTERS["h100"]).step_s * 1e9
    assert -1 < more_ns < 4


@st.composite
def straddling(draw):
    """A step whose groups of 3 and 6 ranks do not divide nodes of 8."""
    model = draw(st.sampled_from([replace(GPT, layers=4, heads=12, hidden=1536), SIX]))
    tp, cp = draw(st.sampled_from([(3, 1), (6, 1), (1, 3), (2, 3), (3, 2)]))
    pp, dp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3]))
    assume(tp * cp * dp * pp <= 36)
    ep = draw(st.sampled_from([ep for ep in (1, 3, 6) if model.experts and tp * cp * dp % ep == 0] or [1]))
    nested = not tp % ep or not ep % tp  # else the engine's dimensions cannot say where expert ranks are
    assume(nested or cp * dp % ep == 0)
    return model, Plan.of(
        1152, pp * dp, tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, expert_tp=1 if nested else tp,
        sequence_parallel=bool(model.experts) or draw(st.booleans()), zero=draw(st.integers(0, 3)),
        context=draw(st.sampled_from(["gather", "ring", "all_to_all"])),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(straddling(), st.sampled_from(["selene", "h100"]))
def test_groups_that_nodes_cut_take_as_long_as_on_the_engine(asked, system):
    """In a layer all wait for the slowest group: never less than on the engine, where replicas may be slow in turn.

    GPT of 4 layers with tp 3, cp 2, dp 4 took 6 % longer on the engine than predicted, as if nodes held whole groups.
    """
    model, plan = asked
    predicted_ns = predict(model, plan, CLUSTERS[system]).step_s * 1e9
    more_ns = engine_ns(model, plan, CLUSTERS[system]) - predicted_ns
    assert more_ns < 4
    if plan.replicas == plan.ep == 1:
        assert more_ns > -1
    assert plan.pp > 1 or more_ns > -0.01 * predicted_ns


@settings(max_examples=60, deadline=None)
@given(strategies())
def test_a_pipeline_is_played_to_the_nanosecond(asked):
    """The engine's stages as processes, against the schedule as data in the same whole nanoseconds."""
    model, plan = asked
    plan = Plan.of(
        1024, plan.micro_batches, pp=plan.pp, schedule=plan.schedule, virtual_stages=plan.virtual_stages,
        overlap_pipeline=plan.overlap_pipeline,
    )  # fmt: skip
    end = next(layer for layer in program(model, plan, SELENE).layers if layer.name == "optimizer")
    found = engine_ns(model, plan, SELENE) - end.forward.compute_ns
    assert timing.play(plan.order, part_times_ns(model, plan, SELENE)).makespan == found


@settings(max_examples=60, deadline=None)
@given(
    tp=st.sampled_from([2, 4, 8]),
    parallel=st.booleans(),
    system=st.sampled_from(["selene", "selene-2021", "simumax-b200"]),
)
def test_collectives_that_kernels_wait_for_are_collectives_of_the_engine(tp, parallel, system):
    """And their bytes those that tensor parallelism sends, but for inputs gathered again beside other kernels."""
    plan = Plan.of(1024, 2, tp=tp, sequence_parallel=parallel)
    workload = program(LLAMA, plan, CLUSTERS[system])
    phases = [phase for row in workload.layers for phase in (row.forward, row.input_grad)]
    sent = sum(phase.size_bytes for phase in phases if phase.collective and phase.size_bytes > 4 * plan.tokens)
    each = plan.tokens * LLAMA.hidden * plan.element_bytes
    blocks = 2 * LLAMA.layers
    both = 4 * blocks + 4 if parallel else 2 * blocks + 2
    assert sent == plan.micro_batches * each * both
    assert predict(LLAMA, plan, CLUSTERS[system]).parts[str(Axis.TENSOR)] > 0


BARE = replace(SELENE, software=Software(launch_s=0.0, step_s=0.0, slowdown=0.0, hides_input_gradient=True, jitter=0.0))


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from([LLAMA, replace(LLAMA, layers=15, heads=32, kv_heads=32), replace(LLAMA, layers=6)]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 4]),
    count=st.sampled_from([4, 8]),
    chunks=st.sampled_from([1, 2]),
    zero=st.integers(0, 1),
    recompute=st.sampled_from(["none", "full"]),
)
def test_generator_kernels_and_engine_give_the_predicted_step(model, tp, pp, dp, count, chunks, zero, recompute):
    """The rows `simcore generate` writes, timed by the same kernels, run by the engine: what `predict` adds up.

    With messages that overlap, and with software that costs nothing. What is left is the sum of the gradients' norm
    and, chunk by chunk, the latencies of the collectives and kernels that end a step.
    """
    chunks = chunks if pp > 1 else 1
    plan = Plan.of(
        1024, count * dp, tp=tp, pp=pp, dp=dp, virtual_stages=chunks, zero=zero, recompute=recompute,
        overlap_pipeline=True, gradient_bytes=4,
    )  # fmt: skip
    workload = pipeline_workload(model, plan, roofline(model, plan, accelerator(BARE.accelerator)))
    more_s = run_ns(workload, plan, BARE.fabric) * 1e-9 - predict(model, plan, BARE).step_s
    assert -5e-5 < more_s < (300e-6 * chunks if dp > 1 or chunks > 1 else 5e-5)
