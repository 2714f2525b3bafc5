"""Which of the paths that an image declares as volumes get a directory of the container."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from moorage.engine.containers.declared_volumes import MAX_VOLUMES, choose_volumes
from moorage.engine.errors import InvalidError


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    """A root file system with links of every kind; `outside` is beside it."""
    root = tmp_path / "root"
    for directory in ("data/inner", "srv/real", "run", "etc"):
        (root / directory).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for name, target in {
        "var": "run", "away": "/srv/real", "escape": "../../outside", "absent": "/srv/not-there",
        "top": "/", "kernel": "/proc/self", "round": "round", "host": str(tmp_path / "outside"),
    }.items():  # fmt: skip
        (root / name).symlink_to(target)
    (root / "file").write_bytes(b"")
    os.mkfifo(root / "fifo")
    return root


def chosen(rootfs: Path, declared: Sequence[str], *requested: str) -> list[str]:
    return list(choose_volumes("app:1", declared, requested, rootfs))


@pytest.mark.parametrize(
    ("declared", "places"),
    [
        (["/data"], ["/data"]),
        (["/data", "/data/inner"], ["/data", "/data/inner"]),
        (["/data", "//data/", "data", "/x/../data", "./data/."], ["/data"]),
        (["/../../data"], ["/data"]),
        (["/not/there"], ["/not/there"]),
        (["/:odd", "/C:/odd", "/a b\n"], ["/:odd", "/C:/odd", "/a b\n"]),
        (["/var/lib"], ["/run/lib"]),
        (["/away"], ["/srv/real"]),
        (["/absent/below"], ["/srv/not-there/below"]),
        (["/escape"], ["/outside"]),
        (["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"], []),
        (["/proc", "/sys/fs/cgroup", "/dev/shm", "/dev/x", "/kernel/fd"], []),
        (["/process", "/device"], ["/process", "/device"]),
    ],
)
def test_paths_are_resolved_inside_the_image(
    rootfs: Path, declared: Sequence[str], places: Sequence[str]
) -> None:
    assert chosen(rootfs, declared) == places


def test_a_link_to_a_directory_of_the_host_stays_inside(rootfs: Path) -> None:
    assert chosen(rootfs, ["/host"]) == [str(rootfs.parent / "outside")]


@pytest.mark.parametrize(
    ("requested", "declared", "places"),
    [
        ("/data", "/data", []),
        ("/data/", "data", []),
        ("/data", "/data/inner", ["/data/inner"]),
        ("/data/inner", "/data", ["/data"]),
        ("/var/lib", "/run/lib", []),
        ("/run/lib", "/var/lib", []),
        ("/var/lib", "/var/lib", []),
        ("/file", "/file", []),
        ("/round", "/data", ["/data"]),
        ("/dev", "/dev", []),
    ],
)
def test_a_mount_of_the_container_takes_the_place_of_the_volume_at_its_path(
    rootfs: Path, requested: str, declared: str, places: Sequence[str]
) -> None:
    assert chosen(rootfs, [declared], requested) == places


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is the root directory"),
        ("/", "is the root directory"),
        ("/data/..", "is the root directory"),
        ("..", "is the root directory"),
        ("/top", "is a link to the root directory"),
        ("/file", "is no directory in it"),
        ("/fifo", "is no directory in it"),
        ("/file/below", "cannot be a directory: Not a directory"),
        ("/round", "cannot be resolved: too many levels"),
        ("/" + "n" * 300, "cannot be a directory: File name too long"),
        ("/a\0b", "is no path"),
        ("/" + "n/" * 3000, "is no path"),
    ],
)
def test_a_path_that_can_be_no_volume_is_refused_by_name(rootfs: Path, path: str, why: str) -> None:
    with pytest.raises(InvalidError, match=f"image app:1 declares the volume .*, which {why}"):
        chosen(rootfs, [path])


def test_an_image_may_declare_so_many_volumes_and_no_more(rootfs: Path) -> None:
    paths = [f"/v{number}" for number in range(MAX_VOLUMES)]
    assert chosen(rootfs, paths) == paths
    with pytest.raises(InvalidError, match=f"declares {MAX_VOLUMES + 1} volumes, more than"):
        chosen(rootfs, [*paths, "/one-more"])
