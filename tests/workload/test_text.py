"""The 12-column text format: what is written reads back equal, and every defect is found where it stands."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.errors import MOST_SHOWN, InputError
from simcore.workload.headers import LOOPS, ROW_POLICIES
from simcore.workload.model import CollectiveKind, Group, Layer, Parallelism, Phase, Workload
from simcore.workload.text import COLLECTIVES, parse, read, write

ROW = "fc -1 1000 NONE 0 900 NONE 0 800 ALLREDUCE 1048576 100"
DLRM = "HYBRID_DLRM 4"
SIMAI = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 4 pp: 2 vpp: 3 ga: 8 all_gpus: 64 "
    "checkpoints: 0 checkpoint_initiates: 0 pp_comm: 4096"
)
NUMBERS = st.integers(0, 2**63 - 1)
NAMES = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=8)


@st.composite
def phases(draw, groups):
    kind = draw(st.sampled_from([None, *COLLECTIVES.values()]))
    return Phase(draw(NUMBERS), kind, draw(NUMBERS), draw(st.sampled_from(groups)) if kind else Group.LOOP)


@st.composite
def layers(draw, loop, groups):
    policy = draw(st.sampled_from(ROW_POLICIES)) if loop == "HYBRID_CUSTOMIZED" else ""
    made = [draw(phases(groups)) for _ in range(3)]
    return Layer(draw(NAMES), *made, draw(NUMBERS), draw(st.integers(-(2**63) + 1, 2**63 - 1)), policy)


@st.composite
def workloads(draw):
    loop, dialect = draw(st.sampled_from(list(LOOPS))), draw(st.sampled_from(["astra-sim", "simai"]))
    groups = [Group.LOOP, Group.EP, Group.DP_EP] if dialect == "simai" else [Group.LOOP]
    rows = tuple(draw(st.lists(layers(loop, groups), min_size=1, max_size=6)))
    arguments = LOOPS[loop]
    tp = draw(st.integers(1, 2**40)) if "model_parallel_NPU_group" in arguments else 0
    sizes = draw(st.tuples(*[st.integers(0, 999)] * 6)) if dialect == "simai" else (0,) * 6
    index = st.integers(0, len(rows) - 1)
    starts = draw(st.lists(index.filter(bool), max_size=4)) if "checkpoints" in arguments and len(rows) > 1 else []
    return Workload(
        loop,
        rows,
        Parallelism(tp, *sizes),
        dialect,
        draw(index) if "DLRM_LAST_BOTTOM_LAYER" in arguments else -1,
        (0,) if starts else (),
        tuple(starts),
        draw(NUMBERS) if dialect == "simai" else 0,
    )


def text(header, *rows, count=None):
    return "\n".join([header, str(len(rows) if count is None else count), *rows]) + "\n"


def problems(content):
    with pytest.raises(InputError) as caught:
        parse(content, "w.txt")
    return caught.value.problems


def places(content):
    return [(problem.location.line, problem.location.column) for problem in problems(content)]


def test_many_wrong_words_of_a_column_are_told_where_they_stand():
    rows = [f"fc{row} -1 x{row} NONE 0 900 NONE 0 800 NONE 0 100" for row in range(25)]
    assert places(text("DATA", *rows)) == [(row + 3, len(f"fc{row} -1 ") + 1) for row in range(20)]


@given(workloads())
@settings(deadline=None)
def test_what_is_written_reads_back_equal(workload):
    assert parse(write(workload), "w.txt") == workload


@given(workloads(), st.sampled_from([" ", "\t", " \t ", "\r\n", "\n"]))
@settings(deadline=None)
def test_any_white_space_separates_rows_and_columns(workload, blank):
    header, count, *rows = write(workload).splitlines()
    wrapped = [f"  {blank.join(row.split())}  " for row in rows]
    assert parse("\r\n".join([header.replace(" ", "\t"), "", count, *wrapped, ""]), "w.txt") == workload


def test_the_dialect_follows_from_the_header_and_can_be_overridden():
    assert parse(text(DLRM, *[ROW] * 5), "w").dialect == "astra-sim"
    assert parse(text("HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 4", *[ROW] * 5), "w").dialect == "simai"
    assert parse(text("HYBRID_TRANSFORMER model_parallel_NPU_group: 4", ROW), "w").dialect == "astra-sim"
    assert parse(text(SIMAI, ROW), "w").dialect == "simai"
    assert parse(text("DATA", ROW), "w", "simai").dialect == "simai"


def test_simai_headers_give_the_group_sizes_in_any_order_with_and_without_colon():
    workload = parse(text(SIMAI, ROW), "w")
    assert workload.parallelism == Parallelism(tp=2, ep=4, pp=2, vpp=3, gradient_accumulation=8, all_gpus=64)
    assert workload.pipeline_bytes == 4096
    loop, *words = SIMAI.replace("pp_comm: 4096", "pp_comm 4096.0").split(" ")
    pairs = [" ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
    assert parse(text(" ".join([loop, *reversed(pairs)]), ROW), "w") == workload


def test_a_header_may_wrap_and_the_count_may_stand_on_its_line():
    assert parse(f"{SIMAI}\t1\n{ROW}\n", "w") == parse(text(SIMAI, ROW), "w")
    assert parse(f"HYBRID_DLRM\n0\n1\n{ROW}", "w") == parse(text("HYBRID_DLRM 0", ROW), "w")


def test_the_location_is_the_group_size_which_must_fit_the_machine():
    location = parse(text("HYBRID_TRANSFORMER model_parallel_NPU_group: 3", ROW), "w.txt").location
    assert str(location) == "w.txt:1:46"


@pytest.mark.parametrize(
    ("column", "word", "message"),
    [
        (2, "x", "reserved must be a whole number"),
        (3, "1_000", "forward compute must be a whole number of nanoseconds"),
        (5, "2.5", "forward size must be a whole number of bytes"),
        (6, "-5", "input-gradient compute must be a whole number of nanoseconds"),
        (8, str(2**63), "input-gradient size is too large"),
        (8, "9" * 5000, "input-gradient size is too large"),
        (10, "ALLREDUCE_XP", "unknown weight-gradient communication type"),
        (10, "ALLREDUCEALLTOALL", "ALLREDUCEALLTOALL is not supported"),
        (10, "ALLTOALL_EP", "groups need a SimAI header"),
        (11, "2.4MB", "weight-gradient size must be a whole number of bytes"),
        (12, "٣", "update delay must be a whole number of nanoseconds"),
    ],
)
def test_a_wrong_column_is_found_where_it_stands(column, word, message):
    words = ROW.split()
    words[column - 1] = word
    row = " ".join(words)
    (problem,) = problems(text("DATA", ROW, row))
    assert problem.message == message
    assert (problem.location.line, problem.location.column) == (4, len(" ".join(words[: column - 1])) + 2)
    assert problem.found.removesuffix(" ..") == repr(word)[:MOST_SHOWN]


@given(st.integers(0, 10**25), st.sampled_from(["{}", "+{}", "{}.0", "{}B", "{}kB", "{}e0", "{}MiB"]))
def test_a_hint_says_what_would_be_right(number, form):
    words = ROW.split()
    words[4] = form.format(number)
    try:
        parse(text("DATA", " ".join(words)), "w")
    except InputError as error:
        (problem,) = error.problems
        verb, _, words[4] = problem.hint.partition(" ")
        if verb == "write":
            parse(text("DATA", " ".join(words)), "w")


def test_all_defects_are_found_at_once():
    rows = [ROW, ROW.replace("NONE", "NOTHING"), ROW + " 7", ROW.replace("1000", "-1"), "fc -1"]
    assert places(text("DATA", *rows, count=9)) == [(4, 12), (4, 26), (5, 56), (6, 7), (7, 6), (2, 1)]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("", (1, 1)),
        ("\n \n", (1, 1)),
        ("DATA", (1, 5)),
        (text("dat", ROW), (1, 1)),
        (text("DATA", ROW, count="two"), (2, 1)),
        (text("DATA", ROW, count=0), (2, 1)),
        (text("DATA", ROW, count=2), (2, 1)),
        (f"DATA\n{ROW}\n", (2, 1)),
        (text("HYBRID_TRANSFORMER", ROW), (1, 1)),
        (text("HYBRID_TRANSFORMER model_parallel_NPU_group: 0", ROW), (1, 46)),
        (text("HYBRID_DLRM", ROW), (1, 1)),
        (text("HYBRID_DLRM 1", ROW), (1, 13)),
        (text("HYBRID_DLRM_4", ROW), (1, 1)),
        (text(SIMAI.replace("vpp:", "vppp:"), ROW), (1, 73)),
        (text(SIMAI.replace("pp: 2 ", "pp: 2 pp: 2 "), ROW), (1, 73)),
        (text(SIMAI.replace("ga: 8", "ga:"), ROW), (1, 80)),
        (text(SIMAI.replace("checkpoints: 0", "checkpoints: 1 7"), ROW), (1, 114)),
        (text(SIMAI.replace("initiates: 0", "initiates: 1 0"), ROW), (1, 138)),
        (text("HYBRID_CUSTOMIZED", ROW), (3, 55)),
        (text("HYBRID_CUSTOMIZED", ROW + " HYBRID_TRANSFORMER"), (3, 56)),
    ],
)
def test_a_wrong_header_is_found_where_it_stands(content, place):
    assert places(content) == [place]


@pytest.mark.parametrize(
    ("checkpoints", "initiates", "message"),
    [
        ("1 2", "1 1", "no checkpoint at or below layer 1, where recomputation starts"),
        ("1 2", "1 2", "recomputation from checkpoint 2 never ends"),
    ],
)
def test_recomputation_that_cannot_run_is_refused(checkpoints, initiates, message):
    header = SIMAI.replace("checkpoints: 0", f"checkpoints: {checkpoints}").replace("tes: 0", f"tes: {initiates}")
    assert [problem.message for problem in problems(text(header, *[ROW] * 3))] == [message]


def test_no_more_than_twenty_problems_are_listed():
    assert len(problems(text("DATA", *[ROW.replace("NONE", "none")] * 40))) == 20


def test_a_size_beside_none_is_kept_and_warned_about():
    workload = parse(text("DATA", ROW.replace("NONE 0", "NONE 5")), "w.txt")
    assert workload.layers[0].forward == Phase(1000, None, 5)
    assert workload.warnings == ("w.txt:3:1: a size beside the type NONE is ignored (row 'fc')",)


def test_a_simai_header_without_pipeline_figures_is_warned_about():
    header = "HYBRID_TRANSFORMER model_parallel_NPU_group: 2 ep: 1 pp: 2"
    assert parse(text(header, ROW), "w.txt").warnings == (
        "w.txt:1: the header gives no vpp, ga; 1 is meant where it is needed",
        "w.txt:1: pp is 2 but pp_comm is 0 bytes",
    )


@pytest.mark.parametrize(
    "workload",
    [
        Workload("DATA", (Layer("two words"),)),
        Workload("DATA", (Layer("fc"),), Parallelism(ep=2)),
        Workload("DATA", (Layer("fc", loop="DATA"),)),
        Workload("DATA", (Layer("fc", Phase(0, CollectiveKind.ALL_TO_ALL, 8, Group.EP)),)),
        Workload("DATA", (Layer("fc", Phase(0, CollectiveKind.BROADCAST, 8)),)),
        Workload("NOTHING", (Layer("fc"),)),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(workload):
    with pytest.raises(InputError):
        write(workload)


def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path):
    path = tmp_path / "w.txt"
    with pytest.raises(InputError, match=r"w\.txt: error: cannot read"):
        read(path)
    path.write_bytes(text("DATA", ROW).encode() + b"\xff")
    with pytest.raises(InputError, match=r"w\.txt:4:1: error: this is not a text file"):
        read(path)


def test_a_hundred_thousand_different_rows_are_read():
    rows = [f"layer{i} -1 {i} ALLREDUCE {i} {i} NONE 0 {i} ALLREDUCE {3 * i} {i % 99}" for i in range(100_000)]
    content = text("DATA", *rows)
    assert len(parse(content, "w.txt").layers) == 100_000


KEYS = ["model_parallel_NPU_group:", "ep:", "pp_comm", "ga:", "checkpoints:", "checkpoint_initiates:", "mode:"]
NUMBERS_AND_BLANKS = [
    "0",
    "1",
    "2",
    "-1",
    "7.5",
    "6.0",
    str(2**63),
    "9" * 5000,
    "²",
    "\x00",
    "\n",
    "\r\n",
    "\u2028",
    "\x0c",
]
TYPES = [*COLLECTIVES, "NONE", "ALLTOALL_EP", "ALLREDUCEALLTOALL"]
WORDS = [*LOOPS, *TYPES, *KEYS, "DLRM_LAST_BOTTOM_LAYER:", "fc", *NUMBERS_AND_BLANKS]


@given(st.lists(st.sampled_from(WORDS), max_size=60), st.sampled_from([None, "astra-sim", "simai"]))
@settings(deadline=None)
def test_any_words_are_a_workload_or_an_error_that_says_where(words, dialect):
    try:
        parse(" ".join(words), "w.txt", dialect)
    except InputError as error:
        assert all(problem.location.line >= 1 and problem.location.column >= 1 for problem in error.problems)
        assert all(str(problem) for problem in error.problems)


@given(workloads(), st.data())
@settings(deadline=None)
def test_a_file_with_one_word_replaced_still_round_trips_or_is_refused_at_that_line(workload, data):
    lines = write(workload).splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    words = lines[number].split()
    words[data.draw(st.integers(0, len(words) - 1))] = data.draw(st.sampled_from([w for w in WORDS if w.strip()]))
    changed = "\n".join([*lines[:number], "\t".join(words), *lines[number + 1 :]])
    try:
        again = parse(changed, "w.txt")
    except InputError:
        return
    assert parse(write(again), "w.txt") == again
