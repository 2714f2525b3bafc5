from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.files import exclusive, write_private


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    for content in (b"one", b"longer than one", b""):
        write_private(path, content)
        assert path.read_bytes() == content
        assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


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


def _count(path: str, barrier: Any) -> None:
    barrier.wait()
    for _ in range(50):
        with exclusive(Path(path).with_suffix(".lock")):
            number = int(Path(path).read_text())
            Path(path).write_text(str(number + 1))


def test_one_at_a_time(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    path, barrier = tmp_path / "number", context.Barrier(3)
    path.write_text("0")
    counters = [context.Process(target=_count, args=(str(path), barrier)) for _ in range(3)]
    for each in counters:
        each.start()
    for each in counters:
        each.join(20)
    assert path.read_text() == "150"
