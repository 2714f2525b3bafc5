"""Namespaces without a process: they live by their files, and go with them."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.linux import pinned
from moorage.linux.idmap import IdMappings, IdRange
from moorage.linux.mounts import current_mounts, mounts_below, unmount

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root here")

KINDS = (pinned.NET, pinned.IPC, pinned.UTS)
PORTS = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "pod"
    for mount in mounts_below(tmp_path, current_mounts()):
        unmount(mount.point)


def inside(directory: Path, *command: str) -> str:
    """What a command prints in the namespaces of a directory."""
    files = {path.name: path for path in directory.iterdir()}
    options = [f"--{kind}={files[kind]}" for kind in KINDS if kind in files]
    done = subprocess.run(
        ["nsenter", *options, *command], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_what_is_made_is_apart_and_ready(directory: Path) -> None:
    before = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}
    pinned.create(directory, KINDS, hostname="pod-a", sysctls={PORTS: "0"})
    assert {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS} == before
    assert inside(directory, "hostname") == "pod-a"
    assert inside(directory, "cat", str(PORTS)) == "0"
    assert PORTS.read_text().strip() != "0"
    assert "UP" in inside(directory, "ip", "link", "show", "lo")
    for kind in KINDS:
        assert pinned.is_pinned(directory / kind)
        assert inside(directory, "readlink", f"/proc/self/ns/{kind}") != before[kind]
    pinned.release(directory)
    assert not directory.exists()
    pinned.release(directory)


def test_only_what_was_asked_for_is_made(directory: Path) -> None:
    pinned.create(directory, (pinned.IPC,))
    assert [path.name for path in directory.iterdir()] == ["ipc"]
    pinned.release(directory)


def test_they_are_furnished_and_moved_later(directory: Path) -> None:
    pinned.create(directory, KINDS)
    before = inside(directory, "readlink", "/proc/self/ns/net")
    moved = directory.with_name("moved")
    pinned.move(directory, moved)
    pinned.configure(moved, KINDS, "pod-b", {PORTS: "80"})
    assert inside(moved, "hostname") == "pod-b"
    assert inside(moved, "cat", str(PORTS)) == "80"
    assert inside(moved, "readlink", "/proc/self/ns/net") == before
    pinned.release(moved)


def test_a_sysctl_that_is_refused_is_named_and_nothing_is_pinned(directory: Path) -> None:
    absent = Path("/proc/sys/net/ipv4/no_such_setting")
    with pytest.raises(pinned.NamespaceError, match="no_such_setting=1"):
        pinned.create(directory, KINDS, sysctls={absent: "1"})
    assert not directory.exists()
    assert not mounts_below(directory, current_mounts())


def test_a_hostname_that_is_too_long_is_refused(directory: Path) -> None:
    with pytest.raises(pinned.NamespaceError, match="setting the hostname"):
        pinned.create(directory, KINDS, hostname="h" * 65)
    assert not directory.exists()


def test_release_takes_what_was_cut_short(directory: Path) -> None:
    pinned.create(directory, (pinned.NET,))
    (directory / "ipc").touch()
    (directory / "note.json").write_text("{}")
    pinned.release(directory)
    assert not directory.exists()


def test_a_file_is_no_namespace(tmp_path: Path) -> None:
    (tmp_path / "net").touch()
    assert not pinned.is_pinned(tmp_path / "net")
    assert not pinned.is_pinned(tmp_path / "absent")


@pytest.mark.parametrize("kinds", [(pinned.NET,), (pinned.UTS,), (pinned.IPC,)])
def test_only_what_is_there_is_furnished(directory: Path, kinds: tuple[str, ...]) -> None:
    done: list[str] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pinned, "_raise_loopback", lambda: done.append("loopback"))
        patched.setattr(pinned, "_name_host", done.append)
        pinned.create(directory, kinds)
        done.clear()
        pinned.configure(directory, kinds, "web", {})
        pinned.configure(directory, kinds, "", {})
    pinned.release(directory)
    wanted = {pinned.NET: ["loopback", "loopback"], pinned.UTS: ["web"], pinned.IPC: []}
    assert done == wanted[kinds[0]]


@pytest.mark.parametrize(
    ("number", "is_raised"), [(errno.EINVAL, False), (errno.ENOENT, False), (errno.EPERM, True)]
)
def test_what_was_never_mounted_is_removed_and_what_is_held_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_raised: bool
) -> None:
    directory = tmp_path / "cut-short"
    directory.mkdir()
    (directory / "net").touch()

    def refuse(place: Path) -> None:
        raise OSError(number, os.strerror(number), str(place))

    monkeypatch.setattr(pinned, "unmount", refuse)
    if is_raised:
        with pytest.raises(PermissionError):
            pinned.release(directory)
    else:
        pinned.release(directory)
    assert directory.exists() == is_raised


def test_failed_pin_is_an_error_with_the_kernels_reason(
    tmp_path: Path,
) -> None:
    with pytest.raises(pinned.NamespaceError, match="pinning /proc/none/ns/net on") as caught:
        pinned._pin(tmp_path / "net", "/proc/none/ns/net")
    assert caught.value.errno == errno.ENOENT
    assert "No such file or directory" in str(caught.value)


def test_namespaces_with_mappings_belong_to_a_user_namespace_that_is_pinned_too(
    directory: Path,
) -> None:
    ranges = (IdRange(0, 100_000, 65_536),)
    pinned.create(directory, KINDS, hostname="pod-c", sysctls={PORTS: "0"},
                mappings=IdMappings(ranges, ranges))  # fmt: skip
    assert sorted(path.name for path in directory.iterdir()) == ["ipc", "net", "user", "uts"]
    assert all(pinned.is_pinned(path) for path in directory.iterdir())
    assert inside(directory, "hostname") == "pod-c"
    assert inside(directory, "cat", str(PORTS)) == "0"
    assert "UP" in inside(directory, "ip", "link", "show", "lo")
    users = subprocess.run(
        ["nsenter", f"--user={directory / 'user'}", "cat", "/proc/self/uid_map"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert users.split() == ["0", "100000", "65536"]
    pinned.release(directory)
    assert not directory.exists()
