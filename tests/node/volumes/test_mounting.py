from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.node.volumes.mounting import SystemMounter
from tests.linux.mounting import bind_and_mount_disk, shared_tree


def test_the_deepest_mounts_come_first() -> None:
    points = list(SystemMounter().mounts_below(Path("/")))
    assert points[-1] == Path("/")
    depths = [len(point.parts) for point in points]
    assert depths == sorted(depths, reverse=True)


def test_a_sibling_with_the_same_beginning_is_not_below() -> None:
    assert list(SystemMounter().mounts_below(Path("/pro"))) == []


def test_unmounting_where_nothing_is_mounted_is_no_error(tmp_path: Path) -> None:
    SystemMounter().unmount(tmp_path / "gone")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A directory with a file in it, and the same directory bound to another place."""
    source, target = tmp_path / "source", tmp_path / "pod" / "volume"
    source.mkdir()
    target.mkdir(parents=True)
    (source / "kept").write_text("kept")
    SystemMounter().bind(str(source), target)
    try:
        yield source, target
    finally:
        # A bind within one file system is no mount point to os.path.ismount.
        for point in SystemMounter().mounts_below(target):
            SystemMounter().unmount(point)


@needs_root
def test_a_bind_shows_the_source_until_it_is_unmounted(bound: tuple[Path, Path]) -> None:
    source, target = bound
    mounter = SystemMounter()
    assert (target / "kept").read_text() == "kept"
    assert list(mounter.mounts_below(target.parent)) == [target]
    mounter.unmount(target)
    assert list(mounter.mounts_below(target.parent)) == []
    assert not (target / "kept").exists()
    assert (source / "kept").exists()


@needs_root
def test_a_mount_that_is_in_use_is_taken_out_of_sight(bound: tuple[Path, Path]) -> None:
    source, target = bound
    user = subprocess.Popen(["sleep", "1000"], cwd=target)
    try:
        SystemMounter().unmount(target)
        assert list(SystemMounter().mounts_below(target.parent)) == []
        assert os.listdir(target) == []
        assert Path(f"/proc/{user.pid}/cwd/kept").read_text() == "kept"
    finally:
        user.kill()
        user.wait()
    assert (source / "kept").exists()


@needs_root
def test_a_link_to_a_mount_is_not_followed(bound: tuple[Path, Path], tmp_path: Path) -> None:
    _, target = bound
    link = tmp_path / "link"
    link.symlink_to(target)
    SystemMounter().unmount(link)
    assert (target / "kept").exists()


@needs_root
def test_mounts_on_one_another_go_one_by_one(bound: tuple[Path, Path]) -> None:
    source, target = bound
    mounter = SystemMounter()
    mounter.mount_tmpfs(target, 1 << 20)
    points = list(mounter.mounts_below(target.parent))
    assert points == [target, target]
    for point in points:
        mounter.unmount(point)
    assert list(mounter.mounts_below(target.parent)) == []
    assert (source / "kept").exists()


@needs_root
@pytest.mark.parametrize("size_bytes", [0, 1 << 20])
def test_a_tmpfs_has_the_size_that_is_given(tmp_path: Path, size_bytes: int) -> None:
    mounter = SystemMounter()
    mounter.mount_tmpfs(tmp_path, size_bytes)
    try:
        figures = os.statvfs(tmp_path)
        if size_bytes:
            assert figures.f_blocks * figures.f_frsize == size_bytes
        else:
            assert figures.f_blocks * figures.f_frsize > 1 << 20
        line = next(line for line in Path("/proc/mounts").read_text().splitlines()
                    if line.split()[1] == str(tmp_path))  # fmt: skip
        kernel = tuple(int(part) for part in os.uname().release.split(".")[:2])
        assert kernel < (6, 4) or "noswap" in line
    finally:
        mounter.unmount(tmp_path)


@needs_root
def test_failed_mount_names_the_target(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        SystemMounter().bind(str(tmp_path / "absent"), tmp_path)
    assert caught.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError):
        SystemMounter().mount_tmpfs(tmp_path / "absent", 0)


@needs_root
def test_unmounting_a_bind_leaves_the_mounts_in_its_source(tmp_path: Path) -> None:
    """As for a container that starts again with a subPath of a hostPath volume."""
    with shared_tree(tmp_path):
        target = tmp_path / "pod"
        disk = bind_and_mount_disk(tmp_path / "data", target)
        SystemMounter().unmount(target)
        assert disk.is_mount()
        assert not list(SystemMounter().mounts_below(target))
