"""Reference material that stands beside the checkout; tests that need it are skipped where it is absent."""

from functools import cache
from pathlib import Path

import pytest

from simcore.workload.kineto import KinetoTrace
from simcore.workload.kineto_reader import read_ranks

FOLDER = Path(__file__).parent.parent.parent / "shared"


def shared(*parts: str) -> Path:
    """The path of a shared file."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {'/'.join(parts)} in shared/ beside the checkout")
    return path


@cache
def recording(*place: str) -> list[KinetoTrace]:
    """The ranks of a public trace, read once for all tests of a process."""
    return read_ranks([shared("data", "traces", *place)])
