import pytest

from simcore.cli import main
from simcore.cost.picture import front_figure
from simcore.cost.predict import Prediction
from simcore.cost.search import Candidate, Found
from simcore.model.plan import Plan


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_predictions_are_drawn_and_nothing_else_is_left(name, tmp_path, capsys):
    assert main(["validate", "mlsys23_table4", "--plot", str(tmp_path / name)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).stat().st_size > 1000


def test_a_search_draws_its_front(tmp_path, capsys):
    study = tmp_path / "s.yaml"
    study.write_text(
        "model: {layers: 4, hidden: 1024, heads: 16, ffn: 4096, vocab: 32000}\n"
        "seq: 512\naccelerators: 8\nglobal_batch: 8\ncluster: selene\nmicro_batch: [1]\n"
    )
    assert main(["search", str(study), "--plot", str(tmp_path / "f.png")]) == 0
    assert (tmp_path / "f.png").exists()


def test_no_label_of_a_front_runs_over_the_frame():
    pytest.importorskip("matplotlib")
    best, spare = (fake(step, memory) for step, memory in ((15.0, 63e9), (40.0, 6e9)))
    figure = front_figure(Found((best,), 2, 2, 2, (best, spare), {}, 0))
    (axes,) = figure.axes
    figure.draw_without_rendering()
    frame = axes.get_window_extent()
    for label in axes.texts:
        box = label.get_window_extent()
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1, label.get_text()


def fake(step_s: float, memory_bytes: float) -> Candidate:
    plan = Plan.of(2048, 1536, tp=4, pp=32, dp=8, schedule="dualpipe", virtual_stages=2)
    return Candidate(plan, memory_bytes, Prediction(step_s, {}))


def test_an_unknown_kind_of_picture_names_the_known(tmp_path, capsys):
    assert main(["validate", "mlsys23_table4", "--plot", str(tmp_path / "a.bmp")]) == 2
    assert ".png" in capsys.readouterr().err
