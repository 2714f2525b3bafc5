from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from moorage.node.volumes.host_path import HostPathError, check_host_path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to("dir")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(tmp_path)  # The path of a socket may hold 108 bytes only.
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gone", ""),
        ("dir", "Directory"),
        ("link", "Directory"),
        ("dir", "DirectoryOrCreate"),
        ("file", "File"),
        ("file", "FileOrCreate"),
        ("socket", "Socket"),
    ],
)
def test_what_is_right(root: Path, name: str, kind: str) -> None:
    check_host_path(root / name, kind)
    assert (root / "file").read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "kind", "complaint"),
    [
        ("gone", "Directory", "is not a directory"),
        ("file", "Directory", "is not a directory"),
        ("file", "DirectoryOrCreate", "is not a directory"),
        ("dir", "File", "is not a file"),
        ("dir", "FileOrCreate", "is not a file"),
        ("file", "Socket", "is not a socket file"),
        ("file", "CharDevice", "is not a character device"),
        ("file", "BlockDevice", "is not a block device"),
    ],
)
def test_mismatched_type_is_named_in_the_error(
    root: Path, name: str, kind: str, complaint: str
) -> None:
    with pytest.raises(HostPathError) as caught:
        check_host_path(root / name, kind)
    assert str(caught.value) == f"hostPath type check failed: {root / name} {complaint}"


def test_what_may_be_made_is_made(root: Path) -> None:
    check_host_path(root / "new/dir", "DirectoryOrCreate")
    check_host_path(root / "new/file", "FileOrCreate")
    assert (root / "new/dir").is_dir()
    assert (root / "new/file").is_file()


@pytest.mark.parametrize(
    ("path", "kind", "complaint"),
    [("/a/../b", "Directory", r"must not contain '\.\.'"), ("/", "Odd", "invalid volume type")],
)
def test_nonsense_is_refused(path: str, kind: str, complaint: str) -> None:
    with pytest.raises(HostPathError, match=complaint):
        check_host_path(Path(path), kind)


def test_device_types_are_distinguished() -> None:
    check_host_path(Path("/dev/null"), "CharDevice")


@pytest.mark.slow
@pytest.mark.usefixtures("removed_by_us")
def test_directories_are_made_as_deep_as_a_path_can_be_and_open_to_all(
    root: Path,
) -> None:
    before = os.umask(0o077)
    try:
        deep = root.joinpath(*["d"] * 1500)
        check_host_path(deep, "DirectoryOrCreate")
        check_host_path(root / "d/made", "FileOrCreate")
    finally:
        os.umask(before)
    assert deep.stat().st_mode & 0o777 == 0o755
    assert (root / "d").stat().st_mode & 0o777 == 0o755
    assert (root / "d/made").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("kind", ["", "Directory", "FileOrCreate"])
def test_nul_is_refused(root: Path, kind: str) -> None:
    with pytest.raises(HostPathError, match="must not contain NUL"):
        check_host_path(root / "a\0b", kind)
