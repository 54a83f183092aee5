import json

import numpy as np
import pytest

from simcore.cli import main
from simcore.compute.measured.tables import SHIPPED

HEADING = "dtype,n,k,m,time_us\n"


@pytest.fixture(autouse=True)
def own_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("SIMCORE_TABLES", str(tmp_path / "tables"))


def write_question(path, rows=3):
    sizes = {"n": np.full(rows, 4096), "k": np.full(rows, 4096), "m": 2 ** np.arange(10, 10 + rows)}
    np.savez(path, **sizes, dtype=np.zeros(rows, int), dtype_names=np.array(["bf16"]))


def predict(question, *options):
    answer = question.parent / "answer.npz"
    assert main(["data", "predict", str(question), "-o", str(answer), "--force", *options]) == 0
    return dict(np.load(answer))


def test_the_list_names_every_shipped_table_with_its_licence(capsys):
    assert main(["data", "list", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert {"aic_h100_gemm", "simumax_b200_gemm_gradients", "vidur_a100_memory"} <= {one["name"] for one in tables}
    assert all(one["licence"] and one["rows"] > 0 and not one["own"] for one in tables)


def test_rows_come_back_in_their_order_with_times_sources_and_distances(tmp_path):
    question = tmp_path / "aic_h100_gemm.npz"
    write_question(question)
    found, blind = predict(question), predict(question, "--without-exact")
    assert (found["m"] == [1024, 2048, 4096]).all()
    assert (np.diff(found["predicted_us"]) > 0).all()
    assert set(found["source"]) <= {"measured", "interpolated"}
    assert (blind["distance"] > 0).all()
    assert np.abs(blind["predicted_us"] / found["predicted_us"] - 1).max() < 0.2


def test_a_table_that_simcore_keeps_is_one_that_it_reads(tmp_path):
    """Shipped ones and one's own, which were refused; every row is measured, as it stands in the table."""
    shipped = SHIPPED / "aic_a100_mla_decode.npz"
    (tmp_path / shipped.name).write_bytes(shipped.read_bytes())
    found = predict(tmp_path / shipped.name)
    assert set(found["source"]) == {"measured"}
    assert found["predicted_us"] == pytest.approx(found["time_us"], rel=1e-3)
    for wrong in ({"points": np.ones(3, int)}, {"dtype_names": np.array([16])}, {"dtype_names": np.array(16)}):
        np.savez(tmp_path / shipped.name, **{**np.load(shipped), **wrong})
        assert main(["data", "predict", str(tmp_path / shipped.name), "-o", str(tmp_path / "no.npz")]) == 2


def test_own_measurements_win_where_they_are_and_pull_their_neighbours(tmp_path, capsys):
    question = tmp_path / "mine_h100_gemm.npz"
    write_question(question)
    before = predict(question)["predicted_us"]
    table = tmp_path / "mine_h100_gemm.csv"
    table.write_text(
        HEADING + "".join(f"bf16,4096,4096,{m},{2 * t}\n" for m, t in zip((1024, 2048), before[:2], strict=True))
    )
    assert main(["data", "add", str(table)]) == 0
    after = predict(question)
    assert after["predicted_us"][:2] == pytest.approx(2 * before[:2], rel=1e-3)
    assert list(after["source"][:2]) == ["measured", "measured"]
    assert after["predicted_us"][2] == pytest.approx(2 * before[2], rel=0.15)  # less, as it is farther
    assert main(["data", "list"]) == 0
    assert "* mine_h100_gemm" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("mine_h100_gemm.csv", "dtype,n,k,time_us\nbf16,1,1,5\n", "column m is missing"),
        ("mine_h100_gemm.csv", HEADING + "bf16,8,8,x,5\n", "mine_h100_gemm.csv:2:4: error: column m is not a number"),
        ("mine_h100_gemm.csv", HEADING + "bf16,8,8,8,0\n", "column time_us, row 1"),
        ("mine_h100_gemm.csv", "", "the file is empty"),
        ("mine_h100_gem.csv", HEADING, "the name says no operation"),
        ("mine_x9000_gemm.csv", HEADING + "bf16,8,8,8,5\n", "no such accelerator"),
        ("mine_h100_gemm.npz", "not an archive", "this is not a table"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(tmp_path, capsys, name, content, expected):
    path = tmp_path / name
    path.write_text(content)
    assert main(["data", "add", str(path)]) == 2
    assert expected in capsys.readouterr().err


def test_the_table_that_is_read_is_never_written_over(tmp_path, capsys):
    question = tmp_path / "aic_h100_gemm.npz"
    write_question(question)
    assert main(["data", "predict", str(question), "-o", str(question), "--force"]) == 2
    assert "this file is an input" in capsys.readouterr().err


def test_predictions_are_written_as_an_npz_only(tmp_path, capsys):
    """Their columns are packed: a CSV of that name would be none."""
    question = tmp_path / "mine_h100_gemm.csv"
    question.write_text(f"{HEADING}bf16,4096,4096,1024,80\n")
    for name, status in (("answer.csv", 2), ("answer.npz", 0)):
        assert main(["data", "predict", str(question), "-o", str(tmp_path / name)]) == status
        assert (tmp_path / name).exists() == (not status)
    assert "expected: one of: .npz" in capsys.readouterr().err
