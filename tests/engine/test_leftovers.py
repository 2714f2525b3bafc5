"""What an earlier engine left goes as far as it can."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from moorage.engine.leftovers import remove_leftover


def test_trees_and_files_go(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "file").touch()
    for name in ("a", "file", "none"):
        remove_leftover(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_failed_removal_is_logged_and_does_not_raise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_path: Path) -> None:
        raise OSError(errno.EBUSY, "busy")

    remove_leftover(tmp_path, fail)
    assert len(caplog.records) == 1
