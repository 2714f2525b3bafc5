from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux import libc
from moorage.linux.mounts import bind, is_mount_point, unmount_all
from tests.descriptors import open_descriptors

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "target"
    directory.mkdir()
    yield directory
    unmount_all(directory)


def test_a_directory_shows_at_a_second_place(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    assert not is_mount_point(target)
    bind(source, target)
    assert is_mount_point(target)
    (target / "file").touch()
    assert (source / "file").exists()
    bind(source, target, is_read_only=True)
    with pytest.raises(OSError, match="Read-only"):
        (target / "other").touch()
    unmount_all(target)
    assert not is_mount_point(target)
    unmount_all(target)


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_bind_that_fails_leaves_nothing_mounted(
    tmp_path: Path, target: Path, fails_at: int
) -> None:
    steps: list[int] = []

    def mount(source: Path | None, target: Path, *, flags: int) -> None:
        steps.append(flags)
        if len(steps) == fails_at:
            raise OSError(errno.EPERM, "refused")
        libc.mount(source, target, flags=flags)

    with pytest.raises(OSError, match="refused"):
        bind(tmp_path, target, is_read_only=True, mount=mount)
    assert not is_mount_point(target)
    assert len(steps) == fails_at


def test_absent_path_is_no_mount_point(tmp_path: Path) -> None:
    assert not is_mount_point(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"No such file or directory.*absent"):
        bind(tmp_path, tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file"):
        bind(tmp_path, tmp_path / "file")


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    before = open_descriptors()
    assert not is_mount_point(tmp_path / "root")
    assert open_descriptors() == before


def test_a_path_through_a_file_is_no_mount_point(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not is_mount_point(tmp_path / "file/below")


def test_mounts_below_the_source_do_not_come_along(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    bind(tmp_path / "other", source / "inner")
    try:
        bind(source, target)
        assert (source / "inner/file").exists()
        assert not (target / "inner/file").exists()
    finally:
        unmount_all(source / "inner")


def test_a_mount_point_through_a_link_is_the_links(tmp_path: Path, target: Path) -> None:
    (tmp_path / "source").mkdir()
    bind(tmp_path / "source", target)
    (tmp_path / "link").symlink_to(target)
    assert not is_mount_point(tmp_path / "link")


def test_what_is_mounted_below_a_mount_later_stays_out_of_the_other_place(
    tmp_path: Path, target: Path
) -> None:
    """The bind is private: what is mounted in it does not propagate to its source."""
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").touch()
    bind(source, target)
    bind(tmp_path / "other", target / "inner")
    try:
        assert (target / "inner/file").exists()
        assert not (source / "inner/file").exists()
    finally:
        unmount_all(target / "inner")
