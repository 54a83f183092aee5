import json
import re
from dataclasses import replace
from math import fsum, inf
from operator import attrgetter
from pathlib import Path
from statistics import fmean

import pytest

from simcore.cli import main
from simcore.cost.margins import Kind, kind_of, margin_of, shipped_errors
from simcore.cost.predict import predict
from simcore.cost.published.lumos import Extrapolation, extrapolations
from simcore.cost.published.reading import sort_rows
from simcore.cost.published.rows import Step, step_of
from simcore.cost.published.suites import FAMILIES, SUITES
from simcore.cost.published.validate import default_documents, scaling, score, suites_table
from simcore.cost.sensitivity import of_question
from simcore.cost.systems import SOFTWARE
from simcore.progress import metered
from tools.calibrate import FITTED, using


@pytest.fixture(scope="module")
def documents():
    return default_documents()


@pytest.fixture(scope="module")
def suites(documents):
    """The rows of every suite, read once."""
    return sort_rows(documents)


@pytest.fixture(scope="module")
def scores(suites):
    """Every suite, predicted once."""
    return {one.suite.name: score(one) for one in suites}


def test_the_documented_table_is_what_the_command_prints(scores):
    page = (Path(__file__).parents[3] / "docs" / "validation.md").read_text()
    assert suites_table(list(scores.values())).markdown() in page, "simcore validate --markdown prints the new one"
    assert scaling(list(scores.values())) in page, "simcore validate prints the new one below"


def test_the_page_for_users_of_calculon_says_how_exact_its_own_table_is_predicted(scores):
    one = scores["mlsys23_table5"]
    page = (Path(__file__).parents[3] / "docs" / "migrating.md").read_text()
    assert f"is {one.mean:.1%} ({len(one.rows)} rows), Calculon's 3.65% (8 rows)" in page
    assert "3.65% (8 rows)" in suites_table([one]).markdown()


def test_the_page_has_every_constant_that_was_fitted():
    page = (Path(__file__).parents[3] / "docs" / "validation.md").read_text()
    for path in (one for paths, _ in FITTED.values() for one in paths):
        profiles, _, field = path.partition("/")
        for profile in profiles.split("+"):
            assert f"| `{path}` | {attrgetter(field)(SOFTWARE[profile]):g} |" in page


# The widest a tolerance may be: what was asked for, or what it was once tightened to.
WIDEST = {
    "mlsys23_table5": 0.025,
    "sc21_table1": 0.035,
    "megascale_table2": 0.05,
    "vtrain_multi": 0.095,
    "vtrain_single": 0.08,
    "megatron_unfitted": 0.09,
    "megascale_table3": 0.055,
    "lumos_figure7": 0.11,
    "lumos_replay": 0.12,
    "megatron_core_h100": 0.07,
    "llama3_405b": 0.025,
    "megatron_bridge_llama": 0.045,
    "megatron_bridge_moe": 0.092,
    "automodel_h100": 0.08,
    "simumax_b200": 0.08,
    "llm_foundry_mpt": 0.05,
    "bigscience": 0.053,
    "activations": 0.05,
    "memory": 0.03,
    "collectives_in_node": 0.06,
    "collectives_across_nodes": 0.06,
    "mlperf_memory": 0.07,
    "torchtitan_memory": 0.165,
    "mlperf_power": 0.15,
    "frameworks_megatron": 0.053,
    "frameworks_fsdp": 0.067,
    "frameworks_xla": 0.06,
    "frameworks_xla_google": 0.06,
    "frameworks_internevo": 0.036,
    "mlperf_gpt3": 0.042,
    "mlperf_llama31_405b": 0.012,
    "mlperf_llama31_8b": 0.035,
    "mlperf_llama2_70b_lora": 0.056,  # once 0.055, with a constant that one round alone fed
}
UNJUDGED = {"mlsys23_table4", "sc21_zero3", "frameworks_other", "mlperf_other"}


def test_tolerances_only_tighten():
    assert {name for name, suite in SUITES.items() if suite.tolerance is None} == UNJUDGED
    for name, widest in WIDEST.items():
        assert SUITES[name].tolerance <= widest, name
    assert set(WIDEST) | UNJUDGED == set(SUITES)


@pytest.mark.parametrize(("missed", "status"), [([], 0), ([*WIDEST][::2], 3), ([*WIDEST][1::2], 3)])
def test_a_suite_outside_its_tolerance_is_named_and_ends_with_status_3(
    missed, status, suites, scores, monkeypatch, capsys
):
    """Each suite's own tolerance counts: half a percent below the mean it has, the same rows miss it."""
    monkeypatch.setattr(
        "simcore.cli.validate.sort_rows",
        lambda *_: [replace(one, suite=SUITES.get(one.suite.name, one.suite)) for one in suites],
    )
    monkeypatch.setattr(
        "simcore.cost.published.validate.score",
        lambda some, *_, **__: replace(scores[some.suite.name], suite=some.suite),
    )
    monkeypatch.setattr("simcore.cost.published.validate.scaling", lambda _, **__: "")
    for name in WIDEST:
        tolerance = scores[name].mean * (0.995 if name in missed else 1.005)
        monkeypatch.setitem(SUITES, name, replace(SUITES[name], tolerance=tolerance))
    assert main(["validate"]) == status
    output = capsys.readouterr()
    assert output.out.count("MISSED") == len(missed)
    assert {name for name in WIDEST if re.search(rf"\b{name}\b", output.err)} == set(missed)


def test_a_constant_that_is_five_percent_off_is_noticed(documents):
    path = "megatron-lm-2021/kernels.products"
    with using({path: 1.05 * SOFTWARE["megatron-lm-2021"].kernels.products}):
        assert score(*sort_rows(documents, [SUITES["mlsys23_table5"]])).missed


def test_progress_sees_every_row(documents):
    (some,) = sort_rows(documents, [SUITES["mlsys23_table5"]])
    with metered() as meter:
        meter.expect(2 * len(score(some).rows))
        score(some)
    assert meter.tell() == 0.5


@pytest.mark.parametrize("name", list(WIDEST))
def test_every_suite_stays_within_its_tolerance(name, scores):
    scored = scores[name]
    assert scored is not None
    assert not scored.missed, f"{scored.mean:.1%}"
    assert scored.quantile(0.5) <= scored.quantile(0.9) <= scored.quantile(1.0)


def test_the_json_is_what_the_contract_says(capsys):
    assert main(["validate", "mlsys23_table5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "simcore.validate/1"
    (suite,) = document["suites"]
    assert {"name", "rows", "mean_abs_error", "p90_abs_error", "max_abs_error"} <= set(suite)
    for row in suite["rows"]:
        assert row["error"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
    assert suite["mean_abs_error"] == pytest.approx(
        sum(abs(row["error"]) for row in suite["rows"]) / len(suite["rows"])
    )


@pytest.mark.parametrize("suite", ["mlsys23_table4", "memory", "collectives_in_node"])
def test_explaining_gives_every_answer_parts_an_interval_and_the_constants_it_follows(suite, capsys):
    assert main(["validate", suite, "--json", "--explain"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["suites"]
    assert len(found["sensitivities"]) == 3
    unit = "bytes" if suite == "memory" else "s"
    for row in found["rows"]:
        low, high = row[f"interval_{unit}"]
        assert low <= row[f"predicted_{unit}"] <= high
        assert sum(row[f"parts_{unit}"].values()) == pytest.approx(row[f"predicted_{unit}"])
        assert 1 <= len(row["sensitivities"]) <= 3
    assert main(["validate", suite, "--explain"]) == 0
    assert "nine in ten rows" in capsys.readouterr().out


def test_the_engine_runs_what_was_predicted(capsys):
    assert main(["validate", "llama3_405b", "--engine", "--json"]) == 0
    (suite,) = json.loads(capsys.readouterr().out)["suites"]
    assert suite["engine_rows"] == len(suite["rows"]) == 3
    for row in suite["rows"]:
        assert row["engine_s"] == pytest.approx(row["predicted_s"], rel=1e-6)
    assert suite["engine_apart"] < 1e-6
    assert main(["validate", "memory", "--engine"]) == 0
    assert "the engine ran 0 of 31 rows" in capsys.readouterr().out


def test_other_measurements_are_read_from_a_file_and_a_miss_is_status_3(tmp_path, capsys):
    row = next(
        row for document in default_documents() for row in document.get("rows", ()) if "t5-175B-full" in row["id"]
    )
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"rows": [{**row, "measured": {"iter_s": 1.0}}]}))
    assert main(["validate", "mlsys23_table5", "--data", str(path), "--json"]) == 3
    assert len(json.loads(capsys.readouterr().out)["suites"][0]["rows"]) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not well-formed"),
        ("{}", "holds no measurements"),
        ('{"rows": []}', "no row of this suite"),
    ],
)
def test_a_file_of_another_form_is_an_error_with_its_place(content, message, tmp_path, capsys):
    path = tmp_path / "bad.json"
    path.write_text(content)
    assert main(["validate", "mlsys23_table5", "--data", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_rows_that_cannot_be_predicted_have_no_error_and_say_why(tmp_path, capsys):
    path = tmp_path / "mine.json"
    path.write_text('{"rows": [{"id": "mlsys23-t5-mine", "model": {"layers": 4}, "measured": {"iter_s": 1.0}}]}')
    assert main(["validate", "--data", str(path), "--rows"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("None of these measurements can be predicted.")
    assert "refused: lacks" in said
    assert "largest" not in said


def test_an_unknown_suite_names_the_nearest(capsys):
    assert main(["validate", "mlsys23"]) == 2
    assert "mlsys23_table5" in capsys.readouterr().err


def test_answers_follow_what_they_spend_their_time_on(documents):
    """Large models follow products, small ones launches, benchmarks of collectives what links carry."""

    def first(name, chosen):
        rows = [row for each in documents for row in SUITES[name].rows(each)]
        return of_question(chosen(rows, key=lambda row: row.measured).question)[0].constant

    assert first("mlsys23_table5", max) == "A100-SXM-80GB.products"
    assert first("vtrain_single", min) == "vtrain-node.launch_s"
    assert first("collectives_in_node", min).endswith("lone_s")
    assert first("collectives_across_nodes", max).endswith("bytes_per_s")


def test_a_collective_follows_the_more_of_its_links_rate_the_larger_it_is(documents):
    """What is neither the links' nor a lone call's is NCCL's own, so all together is at most one for one."""
    rows = [row for each in documents for row in SUITES["collectives_across_nodes"].rows(each)]
    small, large = (chosen(rows, key=lambda row: row.question.size_bytes).question for chosen in (min, max))
    rates = []
    for question in (small, large):
        signs = [-one.elasticity if "bytes_per_s" in one.constant else one.elasticity for one in of_question(question)]
        assert 0 < sum(signs) < 1.01
        rates.append(sum(-one.elasticity for one in of_question(question) if "bytes_per_s" in one.constant))
    assert rates[0] < 0.3
    assert rates[1] == pytest.approx(0.95, abs=0.05)


def test_intervals_are_made_of_how_far_measured_steps_were_missed(scores):
    """Of suites that software is fitted on with the source left out, else as they are scored today."""
    counted = sum(len(seen.errors) for seen in shipped_errors())
    steps = [one for name, one in scores.items() if one and one.suite.unit == "s" and "collectives" not in name]
    apart = ("mlsys23_table4", "lumos_replay")
    assert counted == sum(len(one.rows) for one in steps if one.suite.name not in apart)
    fitted = {name for _, names in FITTED.values() for name in names}
    shown = {error for one in steps if one.suite.name not in {*fitted, *apart} for error in one.errors}
    kept = sorted(error for seen in shipped_errors() for error in seen.errors)
    assert shown
    assert all(any(abs(error - other) < 2e-4 for other in kept) for error in shown)


def test_nine_in_ten_rows_lie_in_intervals_that_other_sources_made(scores):
    steps = [one for name, one in scores.items() if name in FAMILIES and one.rows]
    rows = sum(len(one.rows) for one in steps)
    assert 0.85 <= sum(one.held * len(one.rows) for one in steps) / rows <= 0.97


GROUPS = {
    "Megatron and MLPerf programs": "megatron",
    "DeepSpeed": "deepspeed",
    "PyTorch's FSDP": "fsdp",
    "XLA": "xla",
    "InternEvo": "internevo",
    "of these: mixtures of experts": "experts",
    "of these: adapters": "lora",
    "all": "",
}


@pytest.mark.parametrize("group", list(GROUPS))
def test_intervals_hold_nine_in_ten_errors_of_sources_that_nothing_was_fitted_on_and_the_page_says_so(group):
    page = (Path(__file__).parents[3] / "docs" / "validation.md").read_text()
    asked = [one for one in shipped_errors() if GROUPS[group] in ("", one.kind.software, one.kind.model)]
    margins = [margin_of(one.kind, frozenset([one.source])).share for one in asked]
    held = [
        1 / (1 + margin) <= 1 + error <= 1 + margin
        for one, margin in zip(asked, margins, strict=True)
        for error in one.errors
    ]
    share = sum(held) / len(held)
    assert f"| {group} | {len(held):,} | {share:.0%} |" in page
    assert len(held) < 20 or 0.88 <= share <= 0.97


RANGES = {
    "1 to 15": 1,
    "16 to 63": 16,
    "64 to 255": 64,
    "256 to 1,023": 256,
    "1,024 to 4,095": 1024,
    "4,096 and more": 4096,
}


@pytest.mark.parametrize("title", list(RANGES))
def test_the_page_has_the_error_against_the_number_of_accelerators(title, scores):
    """Steps of suites with a tolerance, without vTrain's single nodes."""
    page = (Path(__file__).parents[3] / "docs" / "validation.md").read_text()
    least = RANGES[title]
    most = min((other for other in RANGES.values() if other > least), default=inf)
    errors = [
        error
        for name, one in scores.items()
        if one.suite.tolerance and name != "vtrain_single"
        for row, error in zip(one.rows, one.errors, strict=True)
        if isinstance(row.question, Step) and least <= row.question.jobs[0].plan.world_size < most
    ]
    mean, bias = fsum(map(abs, errors)) / len(errors), fsum(errors) / len(errors)
    assert f"| {title} | {len(errors)} | {mean:.1%} | {bias:+.1%} |" in page


def test_noise_is_what_runs_of_a_job_and_steps_of_one_configuration_differ_by(documents):
    (one,) = sort_rows(documents, [SUITES["mlperf_llama31_405b"]])
    first = replace(one.rows[0], measured=1.0, spread=0.02)
    rows = [first, replace(first, measured=1.1), replace(one.rows[1], spread=0.0)]
    assert score(replace(one, rows=rows)).noise == pytest.approx({"runs": 0.02, "repeats": 0.1 / 1.05 / 2})
    assert score(replace(one, rows=rows[2:])).noise == {}


def test_of_jobs_that_ran_it_is_counted_how_many_are_said_not_to_fit(scores):
    """Jobs of MLPerf and of frameworks state what is computed again: on NVIDIA's and AMD's boards none is beyond it."""
    beyond = {name: one.tight["does not fit"] for name, one in scores.items() if one and one.tight["does not fit"]}
    assert not beyond


def test_a_kind_of_job_that_nobody_measured_has_a_wider_margin_and_says_so():
    known = Kind("megatron", "H100-SXM-80GB", "NVIDIA", 8, 9, "dense")
    strange = Kind("unheard-of", "Gaudi3", "Intel", 8, 9, "experts")
    assert margin_of(known).support >= 1
    assert margin_of(strange).support < 1
    assert margin_of(strange).share > margin_of(known).share


def test_a_chip_that_nobody_published_steps_of_has_a_wider_margin_than_a_known_one_with_other_memory_and_links():
    known, strange = (Kind("megatron", name, "NVIDIA", 16, 5, "dense") for name in ("H800-SXM-80GB", "V100-SXM2-32GB"))
    assert margin_of(known).support > margin_of(strange).support
    assert margin_of(known).share < margin_of(strange).share


OTHERS = "megatron-core", "deepspeed", "torchtitan", "torchtitan-eager", "maxtext"


def test_intervals_of_software_that_nobody_measured_hold_nine_in_ten_steps_under_profiles_of_other_families(scores):
    """Every source alike; nothing but the hardware and the sort of job is known of such steps."""
    held: dict[str, list[bool]] = {}
    for row in (row for one in scores.values() if one for row in one.rows[::20]):
        step = step_of(row)
        for name in OTHERS if step else ():
            job, system, known = step.chosen(), step.system(), SOFTWARE[name]
            if known.family != system.software.family:
                other = replace(system, software=replace(known, family=""))
                share = margin_of(kind_of(*job, other), frozenset([row.source])).share
                found = 1 / (1 + share) <= predict(*job, other).step_s / row.measured <= 1 + share
                held.setdefault(row.source, []).append(found)
    assert 0.85 <= fmean(map(fmean, held.values())) <= 0.97


def test_a_source_is_not_judged_by_its_own_errors():
    kind = Kind("internevo", "A100-SXM-80GB", "NVIDIA", 16, 8, "dense")
    assert margin_of(kind, frozenset(["internevo"])).support < margin_of(kind).support


LUMOS = {
    f"lumos-f7-{degrees}-replay"
    for degrees in ("2x2x8", "2x2x16", "2x2x32", "2x4x4", "2x8x4", "2x4x8", "2x8x8", "2x4x16")
}
# Faster with half the replicas, and slower with twice as many than at any other step: no configuration says why.
UNEXPLAINED = {"lumos-f7-2x8x4-replay", "lumos-f7-2x4x16-replay"}


def test_every_row_of_lumos_has_a_measurement_and_its_own_prediction(scores):
    scored = scores["lumos_replay"]
    assert {row.id for row in scored.rows} == LUMOS
    assert sum(abs(row.peer / row.measured - 1) for row in scored.rows) / len(LUMOS) == pytest.approx(0.038, abs=0.001)


def test_all_rows_but_those_that_contradict_each_other_are_met_within_a_tenth(scores):
    """A guard, set after seeing: nothing is published for anybody but Lumos."""
    scored = scores["lumos_replay"]
    errors = {row.id: error for row, error in zip(scored.rows, scored.errors, strict=True)}
    assert all(abs(error) < 0.1 for name, error in errors.items() if name not in UNEXPLAINED)


def test_the_page_has_every_row_of_lumos_with_both_errors(scores):
    scored = scores["lumos_replay"]
    page = (Path(__file__).parents[3] / "docs" / "validation.md").read_text()
    for row, error in zip(scored.rows, scored.errors, strict=True):
        lumos = f"{row.peer * 1e3:.0f}, {row.peer / row.measured - 1:+.1%}"
        ours = f"{row.measured * (1 + error) * 1e3:.0f}, {error:+.1%}"
        name = row.id.removeprefix("lumos-f7-").removesuffix("-replay")
        assert f"| {name} | {row.measured * 1e3:.0f} | {lumos} | {ours} |" in page


# Lumos's extrapolations: what the trace tells is what generating the other step would tell; rows show both sides.


def test_lumos_measurements_contradict_each_other():
    measured = {row.id: row.measured for document in default_documents() for row in extrapolations(document)}
    assert measured["lumos-f7-2x8x4-replay"] > 1.4 * measured["lumos-f7-2x8x8-replay"]
    assert measured["lumos-f7-2x4x16-replay"] > 1.5 * measured["lumos-f7-2x4x8-replay"]


def test_an_extrapolation_is_the_sum_of_its_parts_and_follows_the_cluster():
    one = Extrapolation((48, 6144, 12288, 48), 4, 4).explained()
    assert one.step_s == pytest.approx(sum(one.parts.values()))
    assert set(one.parts) == {"compute", "overlapped", "exposed", "bubble", "losses", "other"}


def test_the_command_prints_an_extrapolation_beside_lumos_own(capsys):
    assert main(["validate", "lumos_replay", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["suites"][0]["rows"]
    assert all({"measured_s", "predicted_s", "peer_s", "error"} <= set(row) for row in rows)
    assert main(["validate", "lumos_replay", "--rows"]) == 0
    assert "peer 0.802 s +0.6%" in capsys.readouterr().out
