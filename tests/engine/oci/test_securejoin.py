from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci.securejoin import MAX_BYTES, read_in_root, resolve_in_root


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
    assert read_in_root(root, "etc/passwd") == ""
    (root / "passwd").write_text("the image's")
    assert read_in_root(root, "etc/passwd") == "the image's"


def test_a_link_to_the_hosts_file_by_its_whole_path_is_taken_as_inside(root: Path) -> None:
    (root / "etc/passwd").symlink_to(root.parent / "passwd")
    assert read_in_root(root, "etc/passwd") == ""


def test_directories_may_be_links_too(root: Path) -> None:
    (root / "usr/etc").mkdir(parents=True)
    (root / "usr/etc/passwd").write_text("there")
    (root / "etc").rmdir()
    (root / "etc").symlink_to("/usr/./etc")
    assert read_in_root(root, "etc/passwd") == "there"


def test_links_in_a_circle_are_an_error(root: Path) -> None:
    (root / "etc/passwd").symlink_to("group")
    (root / "etc/group").symlink_to("passwd")
    with pytest.raises(InvalidError, match="too many levels of symbolic links"):
        resolve_in_root(root, "etc/passwd")


def test_a_pipe_does_not_hold_the_engine_up(root: Path) -> None:
    os.mkfifo(root / "etc/passwd")
    with pytest.raises(InvalidError, match="no plain file"):
        read_in_root(root, "etc/passwd")


def test_a_directory_and_a_huge_file_are_refused(root: Path) -> None:
    (root / "etc/passwd").mkdir()
    with pytest.raises(InvalidError, match="no plain file"):
        read_in_root(root, "etc/passwd")
    with (root / "etc/group").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(InvalidError, match="no plain file"):
        read_in_root(root, "etc/group")


def test_bytes_that_are_no_text_are_read_all_the_same(root: Path) -> None:
    (root / "etc/passwd").write_bytes(b"w\xff:x:1:1\n")
    assert read_in_root(root, "etc/passwd").startswith("w")


def test_a_file_that_cannot_be_opened_is_not_taken_for_absent(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container would run as another user than its image says."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InvalidError, match="the image's /etc/passwd cannot be read: Input/output"):
        read_in_root(root, "etc/passwd")
