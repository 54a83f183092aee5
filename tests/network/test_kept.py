"""What numba has compiled and kept is used as long as nothing that it was put together with has changed."""

import os
from types import ModuleType

import pytest

from simcore.network import compiled


@pytest.mark.parametrize(("seconds", "is_kept"), [(60, True), (-60, False)])
def test_what_is_older_than_some_module_is_removed(tmp_path, seconds, is_kept):
    """Numba itself looks only at the module whose functions Python calls."""
    newest = max(each.stat().st_mtime for each in (compiled.Path(compiled.__file__).parent.rglob("*.py")))
    (tmp_path / "__pycache__").mkdir()
    index = tmp_path / "__pycache__" / "core.play-1.py311.nbi"
    index.touch()
    os.utime(index, (newest + seconds, newest + seconds))
    module = ModuleType("core")
    module.__file__ = str(tmp_path / "core.py")
    assert compiled.kept(module) is is_kept
    assert index.exists() is is_kept
