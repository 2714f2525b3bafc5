from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.linux.bind import is_mount_point
from moorage.linux.idmap import (
    IdMappings,
    IdmapUnsupportedError,
    IdRange,
    mount_idmapped,
    user_namespace,
)
from moorage.linux.mounts import mount, unmount

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
    for each in (source, target):
        each.mkdir()
    (source / "file").touch()
    os.chown(source / "file", 7, 8)
    with user_namespace(MAPPINGS) as namespace:
        mount_idmapped(source, target, namespace)
    try:
        found = (target / "file").stat()
        assert (found.st_uid, found.st_gid) == (100_007, 200_008)
    finally:
        unmount(target)
    assert (source / "file").stat().st_uid == 7


@as_root
def test_a_file_system_without_mapped_owners_is_told(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for each in (source, target):
        each.mkdir()
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
