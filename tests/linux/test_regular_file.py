"""Opening of regular files at paths that a container controls."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from moorage.linux.descriptors import NotRegularError, open_regular_file, read_regular_file
from tests.descriptors import open_descriptors

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def _put(kind: str, path: Path) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            (path.parent / "secret").write_text("x")
            path.symlink_to("secret")
        case "dangling link":
            path.symlink_to("absent")
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))


@pytest.mark.parametrize("flags", [os.O_RDONLY, APPEND])
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ("pipe", errno.EINVAL),
        ("socket", errno.EINVAL),
        ("directory", errno.EISDIR),
        ("link", errno.ELOOP),
        ("dangling link", errno.ELOOP),
    ],
)
@pytest.mark.timeout(20)
def test_other_files_are_refused(tmp_path: Path, kind: str, number: int, flags: int) -> None:
    _put(kind, tmp_path / "log")
    before = open_descriptors()
    with pytest.raises(OSError, match=os.strerror(number)) as refused:
        open_regular_file(tmp_path / "log", flags)
    assert (refused.value.errno, refused.value.filename) == (number, str(tmp_path / "log"))
    assert open_descriptors() == before
    assert not (tmp_path / "absent").exists()


def test_devices_are_refused() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        open_regular_file(Path("/dev/null"), os.O_RDONLY)


def test_absent_file_is_created_with_its_mode_or_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular_file(tmp_path / "log", os.O_RDONLY)
    for text in (b"one ", b"two"):
        descriptor = open_regular_file(tmp_path / "log", APPEND, mode=0o640)
        os.write(descriptor, text)
        os.close(descriptor)
    assert (tmp_path / "log").read_bytes() == b"one two"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o640


def test_file_that_another_process_creates_first_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, open_file = tmp_path / "log", os.open

    def late(name: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not path.exists():
            path.write_text("first ")
        return open_file(name, flags, mode)

    monkeypatch.setattr(os, "open", late)
    descriptor = open_regular_file(path, APPEND)
    os.write(descriptor, b"second")
    os.close(descriptor)
    assert path.read_text() == "first second"


def test_regular_files_are_read_through_links_and_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(tmp_path / "link", 3) == b"con"
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        before = open_descriptors()
        with pytest.raises(NotRegularError):
            read_regular_file(path, 1)
        assert open_descriptors() == before


def test_a_descriptor_of_this_process_may_be_a_pipe() -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, b"content")
        assert read_regular_file(Path(f"/dev/fd/{reader}"), 7) == b"content"
    finally:
        os.close(reader)
        os.close(writer)
