"""A replay's files."""

import json
from pathlib import Path

from simcore.cli import main


def test_the_page_names_both_sides_and_says_what_the_text_says(tmp_path, capsys):
    traces = Path(__file__).parents[3] / "docs" / "traces"
    assert main(["replay", str(traces), "-o", str(tmp_path / "out")]) == 0
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Rank 0")).split()
    text = (tmp_path / "out" / "timeline-0.html").read_text()
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    assert data["headline"].split()[: len(said)] == said
    assert {track["group"] for track in data["tracks"]} == {"measured", "predicted"}
    assert data["overview"]["labels"] == ["measured", "predicted"]
    assert data["report"]["ranks"] == []
    assert {row["name"] for row in data["operations"]} >= {"adam", "gemm_forward"}
