from __future__ import annotations

import errno
import os
import struct
import subprocess
from pathlib import Path

import pytest

from moorage.linux import libc
from moorage.linux.idmap import (
    IdMappings,
    IdmapUnsupportedError,
    IdRange,
    held_user_namespace,
    mount_idmapped,
    user_namespace,
)
from moorage.linux.mounts import current_mounts, is_mount_point, mount, mounts_below, unmount
from tests.descriptors import open_descriptors

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

MAPPINGS = IdMappings(
    (IdRange(0, 100_000, 1000), IdRange(1000, 5000, 1)), (IdRange(0, 200_000, 1000),)
)


@pytest.mark.parametrize(("inside", "outside"), [(0, 100_000), (999, 100_999), (1000, 5000)])
def test_ids_are_counted_from_their_ranges(inside: int, outside: int) -> None:
    assert MAPPINGS.user(inside) == outside
    assert MAPPINGS.root == (100_000, 200_000)


def test_an_id_outside_all_ranges_is_an_error() -> None:
    with pytest.raises(OSError, match="id 1001 is not mapped"):
        MAPPINGS.user(1001)
    with pytest.raises(OSError, match="id 1000 is not mapped"):
        MAPPINGS.group(1000)


@as_root
def test_owners_are_shown_as_mapped(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.mkdir()
    (source / "file").touch()
    os.chown(source / "file", 7, 8)
    with user_namespace(MAPPINGS) as namespace:
        mount_idmapped(source, target, namespace)
    try:
        stat_result = (target / "file").stat()
        assert (stat_result.st_uid, stat_result.st_gid) == (100_007, 200_008)
    finally:
        unmount(target)
    assert (source / "file").stat().st_uid == 7


@as_root
def test_file_system_without_mapped_owners_is_an_error(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (source, target):
        path.mkdir()
    mount("proc", source, "proc", "")
    try:
        with (
            user_namespace(MAPPINGS) as namespace,
            pytest.raises(IdmapUnsupportedError, match=r"Linux 5\.12"),
        ):
            mount_idmapped(source, target, namespace)
        assert not is_mount_point(target)
    finally:
        unmount(source)


@as_root
def test_mappings_that_the_kernel_refuses_are_an_error() -> None:
    overlapping = IdMappings((IdRange(0, 1, 10), IdRange(5, 50, 10)), ())
    with (
        pytest.raises(OSError, match="Invalid argument"),
        user_namespace(overlapping),
    ):
        raise AssertionError("a namespace was made")


@pytest.mark.parametrize(
    ("number", "is_unsupported"),
    [(errno.ENOSYS, True), (errno.EINVAL, True), (errno.EOPNOTSUPP, True), (errno.EPERM, False)],
)
def test_unsupported_kernel_is_distinguished_from_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_unsupported: bool
) -> None:
    tree = os.open(tmp_path, os.O_RDONLY)
    calls: list[int] = []

    def call(syscall: int, _about: Path, *words: object) -> int:
        calls.append(syscall)
        if syscall == 428:
            # AT_FDCWD; OPEN_TREE_CLONE and OPEN_TREE_CLOEXEC.
            assert words == (-100, os.fsencode(tmp_path), 1 | os.O_CLOEXEC)
            return tree
        # AT_EMPTY_PATH; MOUNT_ATTR_IDMAP is set, nothing cleared, MS_PRIVATE, the namespace.
        change = struct.pack("QQQQ", 0x100000, 0, 1 << 18, 7)
        assert words == (tree, b"", 0x1000, change, 32)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(libc, "syscall", call)
    why = "no idmapped mounts" if is_unsupported else os.strerror(number)
    with pytest.raises(OSError, match=why) as caught:
        mount_idmapped(tmp_path, tmp_path / "target", 7)
    assert caught.value.errno == number
    assert isinstance(caught.value, IdmapUnsupportedError) == is_unsupported
    # Nothing is moved into place, and the clone is let go of.
    assert calls == [428, 442]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(tree)


@as_root
def test_what_is_mounted_in_it_later_stays_there(tmp_path: Path) -> None:
    """Its propagation is private, though the source's is shared."""
    shared, target = tmp_path / "shared", tmp_path / "target"
    for path in (shared, target):
        path.mkdir()
    mount("none", shared, "tmpfs", "size=64k")
    try:
        subprocess.run(["mount", "--make-shared", str(shared)], check=True)
        (shared / "inner").mkdir()
        with user_namespace(MAPPINGS) as namespace:
            mount_idmapped(shared, target, namespace)
        try:
            mount("none", target / "inner", "tmpfs", "size=4k")
            assert is_mount_point(target / "inner")
            assert not is_mount_point(shared / "inner")
        finally:
            for mounted in mounts_below(target, current_mounts()):
                unmount(mounted.point)
    finally:
        for mounted in mounts_below(shared, current_mounts()):
            unmount(mounted.point)


@as_root
def test_a_source_that_is_absent_is_named(tmp_path: Path) -> None:
    before = open_descriptors()
    with user_namespace(MAPPINGS) as namespace:
        with pytest.raises(FileNotFoundError, match="absent"):
            mount_idmapped(tmp_path / "absent", tmp_path, namespace)
        with pytest.raises(FileNotFoundError, match="nowhere"):
            mount_idmapped(tmp_path, tmp_path / "nowhere", namespace)
    assert open_descriptors() == before


@as_root
def test_a_namespace_has_the_mappings_and_ends_with_its_holder() -> None:
    with held_user_namespace(MAPPINGS, ["uts"]) as directory:
        users = [line.split() for line in (directory / "uid_map").read_text().splitlines()]
        groups = [line.split() for line in (directory / "gid_map").read_text().splitlines()]
        assert users == [["0", "100000", "1000"], ["1000", "5000", "1"]]
        assert groups == [["0", "200000", "1000"]]
        for kind in ("user", "uts"):
            assert os.readlink(directory / "ns" / kind) != os.readlink(f"/proc/self/ns/{kind}")
        assert os.readlink(directory / "ns/net") == os.readlink("/proc/self/ns/net")
    assert not directory.exists()
