from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from moorage.linux.mounts import current_mounts, mount, mounts_below, supports_overlay, unmount

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@as_root
def test_a_file_system_in_memory_can_be_below_an_overlay(tmp_path: Path) -> None:
    directory = tmp_path / "a b"
    directory.mkdir()
    mount("none", directory, "tmpfs", "size=1m")
    try:
        assert supports_overlay(directory)
        assert list(directory.iterdir()) == []
        assert len(mounts_below(tmp_path, current_mounts())) == 1
    finally:
        unmount(directory)


@as_root
@pytest.mark.parametrize("name", ["with:colon", "with,comma"])
def test_names_that_break_mount_options_say_no(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    assert not supports_overlay(directory)
    assert list(directory.iterdir()) == []


@as_root
def test_a_full_file_system_says_no(tmp_path: Path) -> None:
    mount("none", tmp_path, "tmpfs", "size=1m,nr_inodes=3")
    try:
        assert not supports_overlay(tmp_path)
        assert list(tmp_path.iterdir()) == []
    finally:
        unmount(tmp_path)


def test_a_directory_that_is_absent_or_read_only_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not supports_overlay(tmp_path / "absent")

    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("moorage.linux.mounts.mount", refused)
    assert not supports_overlay(tmp_path)
    assert list(tmp_path.iterdir()) == []
