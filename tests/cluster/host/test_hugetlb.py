"""Moving the controller: on the machine's own hierarchy only where it is free to move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.host import hugetlb
from moorage.cluster.host.hugetlb import HostMounts, mount_hugetlb_v1, unmount_hugetlb_v1
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.mounts import Mount

APART = Cgroups(Layout.HYBRID, {"cpu": Path("/c")}, Path("/u"), ("hugetlb",))


class FakeMounts(HostMounts):
    """The host's mounts, as far as the module reads them."""

    def __init__(self) -> None:
        self.points: list[Path] = []
        self.fails = False

    def mount(self, source: str, point: Path, kind: str, options: str) -> None:
        if self.fails:
            raise OSError(16, "Device or resource busy", str(point))
        assert (source, kind, options) == ("cgroup", "cgroup", "hugetlb")
        self.points.append(point)

    def unmount(self, point: Path) -> None:
        if point not in self.points:
            raise OSError(22, "Invalid argument", str(point))
        self.points.remove(point)

    def current(self) -> tuple[Mount, ...]:
        return tuple(Mount(point, "cgroup", "cgroup", frozenset()) for point in self.points)


@pytest.fixture
def mounts() -> FakeMounts:
    return FakeMounts()


@pytest.mark.parametrize(
    "cgroups", [Cgroups(Layout.V2, {}, Path("/u"), ("hugetlb",)), Cgroups(Layout.V1)]
)
def test_other_layouts_stay_as_they_are(
    mounts: FakeMounts, tmp_path: Path, cgroups: Cgroups
) -> None:
    assert not mount_hugetlb_v1(cgroups, tmp_path / "marker", tmp_path / "hugetlb", mounts)
    assert not mounts.points
    assert not (tmp_path / "marker").exists()


def test_it_is_moved_to_its_usual_place(
    mounts: FakeMounts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    marker = tmp_path / "marker"
    with monkeypatch.context() as patched:
        patched.setattr(hugetlb, "make_private", lambda *_: None)
        patched.setattr(Path, "mkdir", lambda path, **_: made.append(path))
        assert mount_hugetlb_v1(APART, marker, mounts=mounts)
    usual = Path("/sys/fs/cgroup/hugetlb")
    assert (made, mounts.points, marker.read_text()) == ([usual], [usual], str(usual))


def test_what_was_moved_is_moved_back(mounts: FakeMounts, tmp_path: Path) -> None:
    marker, point = tmp_path / "run" / "marker", tmp_path / "hugetlb"
    assert mount_hugetlb_v1(APART, marker, point, mounts)
    assert mounts.points == [point]
    unmount_hugetlb_v1(marker, mounts)
    assert not mounts.points
    assert not point.exists()
    assert not marker.exists()


def test_it_stays_while_others_have_cgroups_in_it(mounts: FakeMounts, tmp_path: Path) -> None:
    marker, point = tmp_path / "marker", tmp_path / "hugetlb"
    mount_hugetlb_v1(APART, marker, point, mounts)
    (point / "theirs").mkdir()
    unmount_hugetlb_v1(marker, mounts)
    assert mounts.points == [point]
    assert marker.exists()


def test_a_refused_mount_leaves_no_marker(mounts: FakeMounts, tmp_path: Path) -> None:
    mounts.fails = True
    with pytest.raises(OSError, match="busy"):
        mount_hugetlb_v1(APART, tmp_path / "marker", tmp_path / "hugetlb", mounts)
    assert not (tmp_path / "marker").exists()


def test_the_marker_of_a_cluster_that_was_faster_stays(mounts: FakeMounts, tmp_path: Path) -> None:
    marker, point = tmp_path / "marker", tmp_path / "hugetlb"
    mount_hugetlb_v1(APART, marker, point, mounts)
    mounts.fails = True
    with pytest.raises(OSError, match="busy"):
        mount_hugetlb_v1(APART, marker, point, mounts)
    assert marker.exists()


@pytest.mark.parametrize("has_point", [True, False])
def test_unmount_tolerates_a_mount_that_is_already_gone(
    mounts: FakeMounts, tmp_path: Path, has_point: bool
) -> None:
    marker, point = tmp_path / "marker", tmp_path / "hugetlb"
    mount_hugetlb_v1(APART, marker, point, mounts)
    mounts.points.clear()
    if not has_point:
        point.rmdir()
    unmount_hugetlb_v1(marker, mounts)
    assert not marker.exists()


def test_the_marker_is_there_before_the_mount(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    seen: list[bool] = []

    class Killed(FakeMounts):
        def mount(self, *_: Any) -> None:
            seen.append(marker.exists())

    mount_hugetlb_v1(APART, marker, tmp_path / "hugetlb", Killed())
    assert seen == [True]


def test_nothing_happens_without_a_marker(tmp_path: Path) -> None:
    unmount_hugetlb_v1(tmp_path / "marker")
