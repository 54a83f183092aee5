"""The example scripts print what stands beside them, and the pictures of the documentation are of what they print."""

import runpy
from pathlib import Path

import pytest
from PIL import Image

from simcore.system.collectives import algorithms

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
PICTURES = [
    file for file in sorted((ROOT / "docs" / "images").glob("*.png")) if (EXAMPLES / f"{file.stem}.py").exists()
]


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda script: script.stem)
def test_an_example_prints_its_output(script, capsys, monkeypatch):
    monkeypatch.setattr(algorithms, "_entries", dict(algorithms._entries))
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out == script.with_suffix(".out").read_text()


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_is_of_what_its_example_prints(picture):
    """It keeps the figures that it was drawn from; `python examples/NAME.py docs/images/NAME.png` draws it anew."""
    with Image.open(picture) as opened:
        assert opened.text["Description"] + "\n" == (EXAMPLES / f"{picture.stem}.out").read_text()
