"""Log lines: time, level, source, event, fields."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from moorage.api.logs import LineFormatter, Log, configure


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The root logger's lines, for as long as the test runs."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    configure("info", stream)
    try:
        yield stream
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_a_line_has_its_parts(lines: io.StringIO, level: str) -> None:
    getattr(Log("moorage.node.pods"), level)("pod started", pod="default/a", note="two words")
    stamp, _, rest = lines.getvalue().partition(" ")
    assert abs(datetime.fromisoformat(stamp).timestamp() - datetime.now(UTC).timestamp()) < 60
    assert rest == f'{level} node.pods pod started pod=default/a note="two words"\n'


def test_the_time_has_milliseconds() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "event", None, None)
    record.created = datetime(2026, 1, 2, 3, 4, 5, 67_999, UTC).timestamp()
    assert LineFormatter().format(record) == "2026-01-02T03:04:05.067Z info x event"


def test_levels_below_the_chosen_one_are_left_out(lines: io.StringIO) -> None:
    log = Log("moorage.x")
    log.debug("hidden")
    assert lines.getvalue() == ""
    configure("debug", lines)
    log.debug("shown", a=1)
    assert lines.getvalue().endswith(" debug x shown a=1\n")
    assert lines.getvalue().count("\n") == 1


def test_an_exception_brings_its_traceback_and_an_error_does_not(lines: io.StringIO) -> None:
    log = Log("x")
    try:
        raise KeyError("lost")
    except KeyError:
        log.error("first")
        assert "Traceback" not in lines.getvalue()
        log.exception("second", a="b")
    head, *rest = lines.getvalue().splitlines()[1:]
    assert head.endswith("error x second a=b")
    assert rest[0].startswith("Traceback")
    assert rest[-1] == "KeyError: 'lost'"


@pytest.mark.parametrize(
    ("value", "shown"),
    [("a-b_c./:@+,%9", "a-b_c./:@+,%9"), ("", '""'), ("é", '"é"'), ('a"b', r'"a\"b"'),
     (None, "None"), (1.5, "1.5"), ("a\nb", r'"a\nb"'),
     ("é\x9b2J", r'"é\u009b2J"'), ("a\u2028b\x85c", r'"a\u2028b\u0085c"'),
     ("\u202ea", r'"\u202ea"'), ("\x1b\x7f\udcff", r'"\u001b\u007f\udcff"'),
     ("\U000e0001", r'"\udb40\udc01"')],
)  # fmt: skip
def test_values_are_quoted_where_needed(lines: io.StringIO, value: object, shown: str) -> None:
    Log("x").info("event", value=value)
    assert lines.getvalue().endswith(f"event value={shown}\n")


def test_warnings_of_libraries_are_lines_too(lines: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old call", stacklevel=1)
    assert "old call" in lines.getvalue()


def test_an_unknown_level_is_refused(lines: io.StringIO) -> None:
    with pytest.raises(ValueError, match="LOUD"):
        configure("loud", lines)


def test_a_group_of_errors_is_shown_by_its_members(lines: io.StringIO) -> None:
    """Its own text says only how many there are."""
    inner = ExceptionGroup(
        "unhandled errors in a TaskGroup", [OSError("disk full"), TimeoutError()]
    )
    Log("x").warning("failed", reason=ExceptionGroup("unhandled errors in a TaskGroup", [inner]))
    assert 'reason="disk full; TimeoutError"' in lines.getvalue()


def test_lines_of_the_grpc_library_are_left_out_at_debug(lines: io.StringIO) -> None:
    before = len(lines.getvalue())
    configure("debug", lines)
    logging.getLogger("grpc._cython.cygrpc").debug("Loaded running loop: id(loop)=1")
    Log("moorage.engine").debug("answered")
    assert lines.getvalue()[before:].count("\n") == 1
    configure("error", lines)
    logging.getLogger("grpc._cython.cygrpc").warning("quiet at error")
    assert lines.getvalue()[before:].count("\n") == 1


@pytest.mark.parametrize("piece", ["x", "\0", "\n", "é", "\u2028", '"'])
def test_a_long_value_is_cut_in_its_middle(lines: io.StringIO, piece: str) -> None:
    Log("x").warning("failed", why=f"first{piece * 5_000_000}last", pod="a/b")
    line = lines.getvalue()
    assert len(line) < 60_000
    assert 'why="first' in line
    assert 'last" pod=a/b\n' in line
    assert "characters left out" in line


def test_a_long_event_and_a_long_traceback_are_cut(lines: io.StringIO) -> None:
    try:
        raise ValueError("v" * 5_000_000)
    except ValueError:
        Log("x").exception("e" * 5_000_000)
    assert len(lines.getvalue()) < 100_000
    assert "Traceback" in lines.getvalue()


def test_a_value_at_the_limit_is_whole(lines: io.StringIO) -> None:
    Log("x").info("event", value="v" * 8192)
    assert lines.getvalue().endswith(f" value={'v' * 8192}\n")
