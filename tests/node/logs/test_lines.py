from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.node.logs import (
    LineError,
    LogFilter,
    LogLine,
    LogOptions,
    parse_cri,
    parse_docker,
    parser_for,
)

STAMP = "2026-01-01T00:00:00.123456789Z"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (f"{STAMP} stdout F hello\n", LogLine(STAMP, "stdout", b"hello\n")),
        (f"{STAMP} stderr P hel\n", LogLine(STAMP, "stderr", b"hel")),
        (f"{STAMP} stdout F:extra two words\n", LogLine(STAMP, "stdout", b"two words\n")),
        (f"{STAMP} stdout P:extra x\n", LogLine(STAMP, "stdout", b"x")),
        (f"{STAMP} stdout P cut off", LogLine(STAMP, "stdout", b"cut off")),
        (f"{STAMP} stdout F \n", LogLine(STAMP, "stdout", b"\n")),
        (
            "2026-01-01T01:00:00+01:00 stdout F  x \n",
            LogLine("2026-01-01T01:00:00+01:00", "stdout", b" x \n"),
        ),
    ],
    ids=["whole", "piece", "more tags", "piece with tags", "no end", "empty", "spaces are content"],
)
def test_the_cris_form(line: str, wanted: LogLine) -> None:
    assert parse_cri(line.encode()) == wanted


@pytest.mark.parametrize(
    "line", ["", "\n", f"{STAMP} stdout F\n", f"{STAMP} stdin F x\n", "yesterday stdout F x\n"]
)
def test_invalid_lines_are_rejected(line: str) -> None:
    with pytest.raises(LineError):
        parse_cri(line.encode())


def test_dockers_form() -> None:
    line = b'{"log":"hello\\n","stream":"stderr","time":"2026-01-01T00:00:00.1Z"}\n'
    assert parse_docker(line) == LogLine("2026-01-01T00:00:00.1Z", "stderr", b"hello\n")
    with pytest.raises(LineError):
        parse_docker(b"{}")


def test_the_form_is_found_by_trying() -> None:
    assert parser_for(f"{STAMP} stdout F x\n".encode()) is parse_cri
    assert parser_for(b'{"time":"2026","log":"x"}') is parse_docker
    with pytest.raises(LineError, match="unsupported log format"):
        parser_for(b"plain text\n")


@given(st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"])))
def test_any_content_survives(content: str) -> None:
    assert parse_cri(f"{STAMP} stdout F {content}\n".encode()).content == f"{content}\n".encode()


def shown(*lines: tuple[str, str, str], **options: Any) -> bytes:
    log_filter = LogFilter(LogOptions(**options))
    return b"".join(
        log_filter.shown(LogLine(stamp, stream, content.encode()))
        for stamp, stream, content in lines
    )


OUT, ERR = "stdout", "stderr"


def test_streams() -> None:
    lines = [("t", OUT, "out\n"), ("t", ERR, "err\n")]
    assert shown(*lines) == b"out\nerr\n"
    assert shown(*lines, streams=frozenset({ERR})) == b"err\n"


def test_times_are_shown_once_a_line_however_many_pieces_it_has() -> None:
    lines = [("t1", OUT, "he"), ("t2", OUT, "llo\n"), ("t3", OUT, "\n"), ("t4", OUT, "x\n")]
    assert shown(*lines, timestamps=True) == b"t1 hello\nt3 \nt4 x\n"


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("2026-01-01T00:00:00.000000001+00:00", "2026-01-01T00:00:00.000000001Z"),
        ("2026-01-01T00:00:00.000000001Z", "2026-01-01T00:00:00.000000001Z"),
        ("2026-01-01T01:00:00.000000001+01:00", "2026-01-01T01:00:00.000000001+01:00"),
    ],
)
def test_a_time_in_utc_ends_in_z_as_a_kubelet_prints_it(written: str, printed: str) -> None:
    assert shown((written, OUT, "x\n"), timestamps=True) == f"{printed} x\n".encode()


def test_only_what_is_not_older() -> None:
    lines = [
        ("2026-01-01T00:00:00.999999999Z", OUT, "old\n"),
        ("2026-01-01T02:00:01+01:00", OUT, "an hour later\n"),
        ("2026-01-01T00:00:01Z", OUT, "exactly\n"),
    ]
    since = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert shown(*lines, since=since) == b"an hour later\nexactly\n"


def test_line_with_invalid_time_is_rejected() -> None:
    with pytest.raises(LineError):
        LogLine("2026Tgarbage", OUT, b"x").is_before(datetime(2026, 1, 1, tzinfo=UTC))


def test_the_limit_cuts_within_a_line_and_counts_the_time() -> None:
    lines = [("t", OUT, "hello\n"), ("t", OUT, "world\n")]
    assert shown(*lines, limit_bytes=8) == b"hello\nwo"
    assert shown(*lines, limit_bytes=4, timestamps=True) == b"t he"
    log_filter = LogFilter(LogOptions(limit_bytes=3))
    log_filter.shown(LogLine("t", OUT, b"hello"))
    assert log_filter.is_exhausted
