"""Copies of trees: everything that an entry has, and no more room than it takes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from moorage.engine.images.copying import TreeCopy, same_owner

_SPARSE_BYTES = 1 << 40


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    directory = tmp_path / "target"
    directory.mkdir()
    return directory


def test_holes_stay_holes(source: Path, target: Path) -> None:
    with (source / "sparse").open("wb") as file:
        file.truncate(_SPARSE_BYTES)
        file.seek(_SPARSE_BYTES // 2)
        file.write(b"middle")
    (source / "hole").touch()
    os.truncate(source / "hole", _SPARSE_BYTES)
    TreeCopy(same_owner).tree(source, target)
    with (target / "sparse").open("rb") as copy:
        copy.seek(_SPARSE_BYTES // 2)
        assert copy.read(6) == b"middle"
    for name in ("sparse", "hole"):
        status = (target / name).stat()
        assert status.st_size == _SPARSE_BYTES
        assert status.st_blocks * 512 < 1 << 20


def test_pipes_and_links_are_copied_and_never_opened(source: Path, target: Path) -> None:
    os.mkfifo(source / "fifo", 0o640)
    (source / "away").symlink_to("/etc/passwd")
    (source / "dir").mkdir(mode=0o700)
    (source / "dir/one").write_bytes(b"1")
    os.link(source / "dir/one", source / "two")
    source.chmod(0o1770)
    TreeCopy(same_owner).tree(source, target)
    assert stat.S_ISFIFO((target / "fifo").lstat().st_mode)
    assert os.readlink(target / "away") == "/etc/passwd"
    assert (target / "two").stat().st_ino == (target / "dir/one").stat().st_ino
    assert stat.S_IMODE(target.stat().st_mode) == 0o1770
    assert stat.S_IMODE((target / "dir").stat().st_mode) == 0o700


def test_the_content_of_closed_directories_is_left_out(source: Path, target: Path) -> None:
    (source / "a/b/c").mkdir(parents=True)
    (source / "a/b").chmod(0o1711)
    for name in ("a/file", "a/b/file", "b"):
        (source / name).touch()
    TreeCopy(same_owner).tree(source, target, closed={("a", "b"), ("b",), ("gone",)})
    copied = sorted(str(path.relative_to(target)) for path in target.rglob("*"))
    assert copied == ["a", "a/b", "a/file", "b"]
    assert stat.S_IMODE((target / "a/b").stat().st_mode) == 0o1711


def test_entries_without_content_leave_the_reserve_free(source: Path, target: Path) -> None:
    for number in range(5000):
        (source / str(number)).touch()
    with pytest.raises(OSError, match="must stay free") as raised:
        TreeCopy(same_owner, reserve_bytes=1 << 60).tree(source, target)
    assert raised.value.errno == errno.ENOSPC


def test_a_large_copy_leaves_the_reserve_free(source: Path, target: Path) -> None:
    (source / "small").write_bytes(b"s")
    TreeCopy(same_owner, reserve_bytes=1 << 60).tree(source, target)
    (source / "large").write_bytes(b"l" * (17 << 20))
    with pytest.raises(OSError, match="must stay free") as raised:
        TreeCopy(same_owner, reserve_bytes=1 << 60).tree(source, target)
    assert raised.value.errno == errno.ENOSPC
