"""TOML texts, bounded before they are parsed.

Python's reader takes time and memory with the square of the parts of a dotted key, and calls itself
for each array in an array. So keys and nesting are measured first, in one pass over the text.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from moorage.api import bounds

MAX_BYTES = 256 * 1024
"""Limit on the size of a TOML text: Python's reader is slow. A full configuration has 20 KiB."""

MAX_PARTS = 16
"""Limit on the parts of a dotted key. The deepest keys of containerd's configuration have 7."""

MAX_DEPTH = 64
"""Limit on the levels of arrays and inline tables."""

# A string that is not closed reaches as far as it can, so that no text is looked at twice.
_TOKEN = re.compile(
    r"""
    (?: \"{3} (?: [^"\\] | \\. | "(?!"") )*+ "{0,5} | '{3} (?: [^'] | '(?!'') )*+ '{0,5} )
  | (?P<part> " (?: [^"\\\n] | \\[^\n] )*+ "? | ' [^'\n]*+ '? | [A-Za-z0-9_-]++ | [ \t]++ )
  | (?P<dot> \. )
  | (?P<opening> [\[{] )
  | (?P<closing> [\]}] )
  | \# [^\n]*+
  | .
    """,
    re.VERBOSE | re.DOTALL,
)


class TomlError(ValueError):
    """A text that is not TOML or exceeds a bound; the message says what and where."""


class TomlTooLargeError(TomlError):
    """A text of more than MAX_BYTES characters."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text under the bounds of this module and of `moorage.api.bounds`.

    Takes time and memory in proportion to the text. Raises TomlError, TomlTooLargeError.
    """
    if len(text) > MAX_BYTES:
        raise TomlTooLargeError(f"it has more than {MAX_BYTES // 1024} KiB of TOML; split it")
    _check(text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(f"it is not TOML: {error}") from error
    if excess := bounds.exceeded(document):
        raise TomlError(f"it {excess}")
    return document


def _check(text: str) -> None:
    """Raise TomlError for a key of too many parts, or a value that is nested too deeply."""
    dots = depth = 0
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "part":
                continue
            case "dot":
                dots += 1
                if dots >= MAX_PARTS:
                    raise _exceeded(text, token, f"a key has more than {MAX_PARTS} parts")
                continue
            case "opening":
                depth += 1
                if depth > MAX_DEPTH:
                    what = f"arrays and inline tables are nested deeper than {MAX_DEPTH} levels"
                    raise _exceeded(text, token, what)
            case "closing":
                depth = max(0, depth - 1)
        dots = 0


def _exceeded(text: str, token: re.Match[str], what: str) -> TomlError:
    return TomlError(f"line {text.count(chr(10), 0, token.start()) + 1}: {what}")
