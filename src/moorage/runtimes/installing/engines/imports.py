"""Imports of containerd's main file: one pattern added at its start, and taken out again. Pure.

A file without `imports` gets a line of its own, one with a list gets another first element; all
else stays byte for byte. A result counts only if it has the values of before and the pattern, so
that lines in a multi-line string are left alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from moorage.migrate.rules.handler_files import toml_value

_MARK = "  # added by `moor runtime`, which removes it with its last handler"
_IMPORTS = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]*version[ \t]*=", re.MULTILINE)
_EMPTY = re.compile(r"\s*\]")


def with_import(text: str, pattern: str) -> str | None:
    """Return a text that imports a pattern before all others; None if there is no way.

    Raises TOMLDecodeError if the text is no TOML.
    """
    before = tomllib.loads(text)
    imports = before.get("imports", [])
    if not isinstance(imports, list):
        return None
    wanted = before | {"imports": [pattern, *imports]}
    return next((one for one in _additions(text, pattern) if _values(one) == wanted), None)


def without_import(text: str, pattern: str) -> str:
    """Return a text without what `with_import` added; the same text if that is not found."""
    before = tomllib.loads(text)
    line, imports = _line(pattern), before.get("imports")
    if not isinstance(imports, list) or pattern not in imports:
        return text
    left = [one for one in imports if one != pattern]
    if line in text and not left:
        changed, wanted = text.replace(line, "", 1), {**before}
        wanted.pop("imports")
        return changed if _values(changed) == wanted else text
    element = re.compile(
        rf"(?P<list>^[ \t]*imports[ \t]*=[ \t]*\[){re.escape(toml_value(pattern))}(?:, )?",
        re.MULTILINE,
    )
    for match in element.finditer(text):
        changed = text[: match.start()] + match["list"] + text[match.end() :]
        if _values(changed) == before | {"imports": left}:
            return changed
    return text


def _additions(text: str, pattern: str) -> Iterator[str]:
    for match in _IMPORTS.finditer(text):
        comma = "" if _EMPTY.match(text, match.end()) else ", "
        yield f"{text[: match.end()]}{toml_value(pattern)}{comma}{text[match.end() :]}"
    for match in _VERSION.finditer(text):
        yield f"{text[: match.start()]}{_line(pattern)}{text[match.start() :]}"
    yield _line(pattern) + text


def _values(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _line(pattern: str) -> str:
    return f"imports = [{toml_value(pattern)}]{_MARK}\n"
