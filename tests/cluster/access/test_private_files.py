from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.cluster.access.private_files import write_private


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    for content in (b"one", b"longer than one", b""):
        write_private(path, content)
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    write_private(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device", descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"
