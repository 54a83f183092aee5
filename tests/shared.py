"""Reference material that stands beside the checkout; tests that need it are skipped where it is absent."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "shared"


def shared(*parts: str) -> Path:
    """The path of a shared file."""
    path = FOLDER.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {'/'.join(parts)} in shared/ beside the checkout")
    return path
