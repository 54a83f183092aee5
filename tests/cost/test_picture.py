import pytest

from simcore.cli import main


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_predictions_are_drawn_and_nothing_else_is_left(name, tmp_path, capsys):
    assert main(["validate", "mlsys23_table4", "--plot", str(tmp_path / name)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).stat().st_size > 1000


def test_a_search_draws_its_front(tmp_path, capsys):
    study = tmp_path / "s.yaml"
    study.write_text(
        "model: {layers: 4, hidden: 1024, heads: 16, ffn: 4096, vocab: 32000, seq: 512}\n"
        "accelerators: 8\nglobal_batch: 8\nsystem: selene\n"
    )
    assert main(["search", str(study), "--plot", str(tmp_path / "f.png")]) == 0
    assert (tmp_path / "f.png").exists()


def test_an_unknown_kind_of_picture_names_the_known(tmp_path, capsys):
    assert main(["validate", "mlsys23_table4", "--plot", str(tmp_path / "a.bmp")]) == 2
    assert ".png" in capsys.readouterr().err
