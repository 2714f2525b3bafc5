from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from moorage.linux.atomic_file import rename_durably, replace_file, write_durably
from tests.descriptors import open_descriptors


def test_a_file_is_replaced_whole_and_is_the_owners(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"first, which is longer", b"second"):
        write_durably(path, content)
        assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".file.new").write_bytes(b"half of something longer")
    write_durably(tmp_path / "file", b"whole")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_a_directory_gets_its_name(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    rename_durably(tmp_path / "new", tmp_path / "name")
    assert (tmp_path / "name").is_dir()
    with pytest.raises(FileNotFoundError):
        rename_durably(tmp_path / "new", tmp_path / "name")


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    before = open_descriptors()
    write_durably(tmp_path / "file", b"content")
    assert open_descriptors() == before


def test_content_and_name_are_on_disk_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content before it gets its name, and then the directory that holds the name."""
    synced: list[tuple[str, bool]] = []

    def fsync(descriptor: int) -> None:
        place = os.readlink(f"/proc/self/fd/{descriptor}")
        is_complete = place == str(tmp_path) or Path(place).read_bytes() == b"content"
        synced.append((Path(place).name, is_complete and (tmp_path / "file").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_durably(tmp_path / "file", b"content")
    assert synced == [(".file.new", False), (tmp_path.name, True)]


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def refuse(_descriptor: int, _mode: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_the_error_is_that_of_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(scratch: Path, _target: Path) -> None:
        scratch.unlink()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "replace", lose)
    with pytest.raises(OSError, match="Input/output error"):
        replace_file(tmp_path / "file", b"new")


def test_the_mode_is_exact_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "program", b"", mode=0o755)
    finally:
        os.umask(before)
    assert (tmp_path / "program").stat().st_mode & 0o777 == 0o755


def test_named_writers_do_not_share_an_unfinished_file(tmp_path: Path) -> None:
    (tmp_path / ".file.new").mkdir()
    replace_file(tmp_path / "file", b"content", writer="second")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_file_is_the_owners_alone_until_it_has_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []

    def fchmod(descriptor: int, mode: int) -> None:
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        modes.append(mode)

    monkeypatch.setattr(os, "fchmod", fchmod)
    replace_file(tmp_path / "file", b"content", mode=0o644)
    assert modes == [0o600, 0o644]


def test_content_is_synced_only_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    replace_file(tmp_path / "file", b"content")
    assert synced == []
    replace_file(tmp_path / "file", b"content", is_synced=True)
    assert len(synced) == 1


def test_what_lies_at_the_scratch_name_is_replaced_and_not_written_to(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    scratch = tmp_path / ".a.new"
    for is_pipe in (True, False):
        if is_pipe:
            os.mkfifo(scratch)
        else:
            os.link(other, scratch)
        replace_file(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"new"
    assert other.read_bytes() == b"mine"
    assert not scratch.exists()
