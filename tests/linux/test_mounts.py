from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.linux import libc
from moorage.linux.mounts import (
    NO_EXECUTION,
    NO_PRIVILEGE,
    Mount,
    current_mounts,
    isolate,
    isolate_below,
    mount,
    mounts_below,
    parse_mounts,
    unmount,
)
from tests.linux.mounting import bind_and_mount_disk, shared_tree

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def line(point: str, *, optional: str = "", kind: str = "tmpfs", options: str = "rw") -> str:
    middle = f" {optional}" if optional else ""
    return f"36 35 98:0 / {point} rw,noatime{middle} - {kind} source {options}"


@pytest.mark.parametrize(
    ("point", "wanted"),
    [
        ("/mnt", "/mnt"),
        (r"/my\040data", "/my data"),
        (r"/tab\011new\012line\134slash", "/tab\tnew\nline\\slash"),
        ("/with-dash - inside", None),
        ("/größe", "/größe"),
    ],
)
def test_points_are_read_as_the_kernel_escapes_them(point: str, wanted: str | None) -> None:
    if wanted is None:
        # The kernel escapes blanks, so such a line does not come from it.
        assert parse_mounts(line(point)) != ()
        return
    (mount_point,) = parse_mounts(line(point))
    assert mount_point == Mount(Path(wanted), "tmpfs", "source", frozenset({"rw"}))


@pytest.mark.parametrize("optional", ["", "shared:1", "shared:1 master:2 propagate_from:3"])
def test_optional_fields_may_be_many_or_none(optional: str) -> None:
    (mount_point,) = parse_mounts(line("/mnt", optional=optional, kind="cgroup", options="rw,cpu"))
    assert (mount_point.kind, mount_point.options) == ("cgroup", frozenset({"rw", "cpu"}))


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_point_with_a_separator_that_is_no_newline_is_one_line(separator: str) -> None:
    (mount_point,) = parse_mounts(line(f"/odd{separator}name") + "\n")
    assert mount_point.point == Path(f"/odd{separator}name")


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    for mount_point in parse_mounts(text):
        assert isinstance(mount_point.point, Path)


def test_the_innermost_mount_comes_first() -> None:
    points = ["/", "/data", "/data/a", "/database", "/data/a/b", "/data"]
    mount_points = mounts_below(Path("/data"), parse_mounts("\n".join(map(line, points))))
    assert [str(mount_point.point) for mount_point in mount_points] == [
        "/data",
        "/data/a/b",
        "/data/a",
        "/data",
    ]


def test_a_mount_whose_name_is_no_text_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(os.fsencode(line("/odd")).replace(b"/odd", b"/odd\xff"))
    monkeypatch.setattr("moorage.linux.mounts.MOUNTINFO", table)
    (mount_point,) = current_mounts()
    assert os.fsencode(mount_point.point) == b"/odd\xff"


@as_root
def test_a_real_mount_comes_and_goes(tmp_path: Path) -> None:
    point = tmp_path / "a b\n"
    point.mkdir()
    mount("none", point, "tmpfs", "size=4k")
    try:
        assert [mount.kind for mount in mounts_below(tmp_path, current_mounts())] == ["tmpfs"]
    finally:
        unmount(point)
    assert mounts_below(tmp_path, current_mounts()) == []


def test_failures_name_the_place(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not-mounted"):
        unmount(tmp_path / "not-mounted")
    with pytest.raises(OSError, match="nowhere"):
        mount("none", tmp_path / "nowhere", "tmpfs", "")


@as_root
def test_a_mount_in_use_is_taken_away_too_and_its_users_go_on(tmp_path: Path) -> None:
    mount("none", tmp_path, "tmpfs", "size=64k")
    try:
        with (tmp_path / "file").open("w+") as file:
            unmount(tmp_path)
            assert mounts_below(tmp_path, current_mounts()) == []
            file.write("still here")
            file.seek(0)
            assert file.read() == "still here"
    finally:
        for mount_point in mounts_below(tmp_path, current_mounts()):
            unmount(mount_point.point)


def test_taking_a_mount_away_aborts_no_request_of_its_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MNT_DETACH alone: with MNT_FORCE, what runs on FUSE and NFS fails. Source: umount2(2)."""
    calls: list[tuple[bytes, int]] = []

    class Libc:
        def umount2(self, point: bytes, flags: int) -> int:
            calls.append((point, flags))
            return 0

    monkeypatch.setattr(libc, "_libc", Libc())
    unmount(tmp_path)
    assert calls == [(os.fsencode(tmp_path), 2)]


@as_root
@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        (NO_PRIVILEGE, os.ST_NOSUID | os.ST_NODEV),
        (NO_EXECUTION, os.ST_NOEXEC),
        (0, 0),
    ],
)
def test_what_a_mount_forbids(tmp_path: Path, flags: int, wanted: int) -> None:
    mount("none", tmp_path, "tmpfs", "size=4k", flags)
    try:
        restrictions = os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
        assert os.statvfs(tmp_path).f_flag & restrictions == wanted
    finally:
        unmount(tmp_path)


@as_root
def test_a_failure_has_the_kernels_reason(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Invalid argument") as caught:
        unmount(tmp_path)
    assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, str(tmp_path))
    with pytest.raises(OSError, match="No such device") as caught:
        mount("none", tmp_path, "no-such-kind", "")
    assert caught.value.errno == errno.ENODEV


@pytest.mark.parametrize(
    "text",
    [
        "36 35 98:0 / - tmpfs source rw",
        "36 35 98:0 / /mnt rw - tmpfs source",
        "36 35 98:0 / /mnt rw tmpfs source rw",
        "",
    ],
)
def test_a_line_that_is_cut_short_is_left_out(text: str) -> None:
    whole = line("/whole")
    assert [str(mount.point) for mount in parse_mounts(f"{text}\n{whole}")] == ["/whole"]


def test_a_line_with_the_fewest_fields_is_a_mount() -> None:
    (mount_point,) = parse_mounts("36 35 98:0 / /mnt - tmpfs source rw")
    assert mount_point.point == Path("/mnt")


@as_root
def test_an_unmount_below_isolated_mounts_reaches_no_peer(tmp_path: Path) -> None:
    with shared_tree(tmp_path):
        target = tmp_path / "pod" / "volume"
        disk = bind_and_mount_disk(tmp_path / "data", target)
        isolate_below(tmp_path / "pod")
        unmount(target / "disk")
        assert disk.is_mount()
        unmount(target)
        assert not mounts_below(tmp_path / "pod", current_mounts())


@as_root
def test_a_mount_behind_a_link_is_not_isolated(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    with shared_tree(tmp_path / "host") as host:
        (tmp_path / "link").symlink_to(host)
        isolate(tmp_path / "link")
        # Asserts that mounts are still propagated.
        bind_and_mount_disk(host / "data", host / "pod")


def test_isolating_what_is_no_mount_is_no_error(tmp_path: Path) -> None:
    isolate_below(tmp_path)
    isolate(tmp_path / "absent")
