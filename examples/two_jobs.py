"""Two jobs on one ring: side by side they do not meet, spread over it they share every link."""

import tempfile
from pathlib import Path

from simcore.cli import main

JOBS = """\
topology: ring8
jobs:
  - {{name: left, workload: dlrm, npus: 4, place: {place}}}
  - {{name: right, workload: dlrm, npus: 4, place: {place}}}
"""


def run(place: str) -> None:
    """Print the report of both jobs placed so."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.yaml"
        file.write_text(JOBS.format(place=place))
        main(["run", str(file), "-q"])


if __name__ == "__main__":
    run("packed")
    print()
    run("spread")
