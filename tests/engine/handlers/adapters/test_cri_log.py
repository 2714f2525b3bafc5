"""Log lines as the kubelet reads them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.handlers.adapters import STDERR, STDOUT
from moorage.engine.handlers.adapters.monitored import PIECE_BYTES, CriLog, format_output

AT = 1_767_323_045_000_000_006
STAMP = "2026-01-02T03:04:05.000000006Z"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"one\n", ["F one"]),
        (b"one\ntwo\n", ["F one", "F two"]),
        (b"one\n\n", ["F one", "F "]),
        (b"prompt$ ", ["P prompt$ "]),
        (b"one\nrest", ["F one", "P rest"]),
        (b"a\r\n", ["F a\r"]),
        (b"", []),
        (b"x" * PIECE_BYTES + b"\n", [f"F {'x' * PIECE_BYTES}"]),
        (b"x" * PIECE_BYTES, [f"P {'x' * PIECE_BYTES}"]),
        (
            b"x" * PIECE_BYTES + b"y" * PIECE_BYTES + b"z\nw",
            [f"P {'x' * PIECE_BYTES}", f"P {'y' * PIECE_BYTES}", "F z", "P w"],
        ),
    ],
)
def test_output_becomes_lines_and_pieces(data: bytes, expected: list[str]) -> None:
    text = format_output(data, STDOUT, AT).decode()
    assert text.split("\n")[:-1] == [f"{STAMP} stdout {line}" for line in expected]


def test_errors_are_named() -> None:
    assert format_output(b"x\n", STDERR, AT) == f"{STAMP} stderr F x\n".encode()


@given(st.lists(st.binary(max_size=3 * PIECE_BYTES), max_size=4))
def test_no_byte_is_lost_and_no_piece_too_long(outputs: list[bytes]) -> None:
    log = b"".join(format_output(data, STDOUT, AT) for data in outputs)
    read = bytearray()
    for line in log.split(b"\n")[:-1]:
        _stamp, _stream, tag, content = line.split(b" ", 3)
        assert len(content) <= PIECE_BYTES
        read += content + (b"\n" if tag == b"F" else b"")
    assert bytes(read) == b"".join(outputs)


def test_reopened_log_continues_in_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "pod" / "0.log"
    log = CriLog(path, lambda: AT)
    assert path.stat().st_mode & 0o777 == 0o640
    log.write(STDOUT, b"part")
    assert not log.is_at_line_end
    log.write(STDOUT, b"ed\n")
    assert log.is_at_line_end
    path.rename(path.with_suffix(".old"))
    log.reopen()
    log.write(STDERR, b"new\n")
    log.close()
    assert path.with_suffix(".old").read_text().count("stdout") == 2
    assert path.read_text() == f"{STAMP} stderr F new\n"


def test_full_disk_is_logged_once_and_does_not_block(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = CriLog(tmp_path / "0.log")
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), log._descriptor)
    for _ in range(3):
        log.write(STDOUT, b"lost\n")
    log.close()
    assert [record.getMessage() for record in caplog.records] == ["log not written"]


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.timeout(20)
def test_log_is_a_regular_file_only(tmp_path: Path, kind: str) -> None:
    path, target = tmp_path / "0.log", tmp_path / "target"
    target.write_text("the host's")
    log = CriLog(path, lambda: AT)
    path.unlink()
    if kind == "link":
        path.symlink_to(target)
    else:
        os.mkfifo(path)
    with pytest.raises(OSError, match=r"0\.log"):
        log.reopen()
    # The old file stays open.
    log.write(STDOUT, b"x\n")
    log.close()
    with pytest.raises(OSError, match=r"0\.log"):
        CriLog(path, lambda: AT)
    assert target.read_text() == "the host's"
