"""Root-confined path resolution: links in a tree cannot lead out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moorage.linux.rooted_path import open_in_root, read_in_root, resolve_in_root
from tests.descriptors import open_descriptors

MAX_BYTES = 4 << 20


def read(root: Path, path: str) -> str:
    try:
        return read_in_root(root, path, MAX_BYTES)
    except FileNotFoundError:
        return ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "passwd").write_text("the host's")
    inside = tmp_path / "root"
    (inside / "etc").mkdir(parents=True)
    return inside


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("etc/passwd", "../../passwd"),
        ("etc/passwd", "../../../../../../passwd"),
        ("etc/passwd", "/passwd"),
    ],
)
def test_a_link_cannot_lead_out(root: Path, link: str, target: str) -> None:
    (root / link).symlink_to(target)
    assert read(root, "etc/passwd") == ""
    (root / "passwd").write_text("the image's")
    assert read(root, "etc/passwd") == "the image's"


def test_a_link_to_the_hosts_file_by_its_whole_path_is_taken_as_inside(root: Path) -> None:
    (root / "etc/passwd").symlink_to(root.parent / "passwd")
    assert read(root, "etc/passwd") == ""


def test_directories_may_be_links_too(root: Path) -> None:
    (root / "usr/etc").mkdir(parents=True)
    (root / "usr/etc/passwd").write_text("there")
    (root / "etc").rmdir()
    (root / "etc").symlink_to("/usr/./etc")
    assert read(root, "etc/passwd") == "there"


def test_links_in_a_circle_are_an_error(root: Path) -> None:
    (root / "etc/passwd").symlink_to("group")
    (root / "etc/group").symlink_to("passwd")
    with pytest.raises(OSError, match="too many levels of symbolic links"):
        resolve_in_root(root, "etc/passwd")


def test_a_pipe_does_not_hold_the_engine_up(root: Path) -> None:
    os.mkfifo(root / "etc/passwd")
    with pytest.raises(OSError, match="not a regular file"):
        read(root, "etc/passwd")


def test_a_directory_and_a_huge_file_are_refused(root: Path) -> None:
    (root / "etc/passwd").mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        read(root, "etc/passwd")
    with (root / "etc/group").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(OSError, match="larger than 4194304 bytes"):
        read(root, "etc/group")


def test_bytes_that_are_no_text_are_read_all_the_same(root: Path) -> None:
    (root / "etc/passwd").write_bytes(b"w\xff:x:1:1\n")
    assert read(root, "etc/passwd").startswith("w")


@pytest.mark.parametrize(
    ("path", "is_found"),
    [("inside", True), ("link", True), ("/inside", True), ("../../inside", True),
     ("outwards", False), ("absent", False)],
)  # fmt: skip
def test_a_path_cannot_leave_its_root(tmp_path: Path, path: str, is_found: bool) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "inside").touch()
    (root / "link").symlink_to("/inside")
    (tmp_path / "outside").touch()
    (root / "outwards").symlink_to("../outside")
    if not is_found:
        with pytest.raises(FileNotFoundError):
            open_in_root(root, path)
        return
    descriptor = open_in_root(root, path)
    try:
        assert os.fstat(descriptor).st_ino == (root / "inside").stat().st_ino
    finally:
        os.close(descriptor)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    before = open_descriptors()
    os.close(open_in_root(tmp_path, "root"))
    with pytest.raises(FileNotFoundError):
        open_in_root(tmp_path, "absent")
    assert open_descriptors() == before


@pytest.mark.parametrize(("links", "is_found"), [(40, True), (41, False)])
def test_forty_links_are_followed(tmp_path: Path, links: int, is_found: bool) -> None:
    (tmp_path / "0").touch()
    for number in range(links):
        (tmp_path / str(number + 1)).symlink_to(str(number))
    if is_found:
        assert resolve_in_root(tmp_path, str(links)) == tmp_path / "0"
        return
    with pytest.raises(OSError, match="too many levels of symbolic links"):
        resolve_in_root(tmp_path, str(links))
