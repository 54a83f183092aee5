"""The example scripts print what stands beside them."""

import runpy
from pathlib import Path

import pytest

from simcore.system.collectives import algorithms

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda script: script.stem)
def test_an_example_prints_its_output(script, capsys, monkeypatch):
    monkeypatch.setattr(algorithms, "_entries", dict(algorithms._entries))
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out == script.with_suffix(".out").read_text()
