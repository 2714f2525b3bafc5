"""Logging: events with fields, one line each.

    2026-01-02T03:04:05.678Z info scheduler bound pod=default/web node=n1

All components use `pod=` and `uid=` for a pod and `request=` for a request. The levels are those of
the standard library; `configure` is called once, by the process's entry point. Values are bounded:
containers and clients write some of them.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Protocol

_FIELDS = "moorage_fields"
_MOST_CHARACTERS = 8 * 1024
"""Of one value or message. A path, a command or an error of a person's is shorter."""
_MOST_TRACE_CHARACTERS = 64 * 1024
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@+,%")


class Log:
    """A named source of events. Field values are printed unchanged, quoted where needed."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self._emit(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """Log an error with the traceback of the exception being handled."""
        self._emit(logging.ERROR, event, fields, is_traced=True)

    def _emit(
        self, level: int, event: str, fields: dict[str, Any], *, is_traced: bool = False
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={_FIELDS: fields}, exc_info=is_traced)


class LineFormatter(logging.Formatter):
    """Formats a record as `time level source event field=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line: time, level, logger, message, fields; then a traceback."""
        moment = datetime.fromtimestamp(record.created, UTC)
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
        source = record.name.removeprefix("moorage.")
        parts = [stamp, record.levelname.lower(), source, _bounded(record.getMessage())]
        fields: dict[str, Any] = getattr(record, _FIELDS, {})
        parts += [f"{key}={_shown(value)}" for key, value in fields.items()]
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + _bounded(self.formatException(record.exc_info), _MOST_TRACE_CHARACTERS)
        return line


def _shown(value: Any) -> str:
    text = _bounded(_words(value) if isinstance(value, BaseException) else str(value))
    return text if text and _PLAIN.issuperset(text) else _quoted(text)


def _bounded(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return a text, or its beginning and its end with what was left out between them."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    return f"{text[: most // 2]} … {left_out} characters left out … {text[-most // 2 :]}"


def _quoted(text: str) -> str:
    """Return a text as a JSON string, with escapes for all that is no printable character.

    Containers and users write some of it: terminals and readers of lines take more than the control
    characters that JSON escapes for commands and ends of lines.
    """
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    escapes = {ord(one): json.dumps(one)[1:-1] for one in set(quoted) if not one.isprintable()}
    return quoted.translate(escapes)


def _words(error: BaseException) -> str:
    """Return an error's text, or its type without one; of a group, those of its members."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(map(_words, error.exceptions)))
    return str(error) or type(error).__name__


class Stream(Protocol):
    """What a logging handler writes lines to."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


def configure(level: str = "info", stream: Stream = sys.stderr) -> None:
    """Send all log lines of this process to a stream. Raises ValueError for an unknown level."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # At debug it logs several lines for each call, which say nothing of the call.
    logging.getLogger("grpc").setLevel(max(root.level, logging.INFO))
    logging.captureWarnings(capture=True)
