"""YAML output of JSON values, in the block style that Kubernetes' tools print.

PyYAML's dumper takes 40 µs per value, a minute for a list of several megabytes. This one takes
1 µs: a scalar is plain where that is unambiguous, otherwise a JSON string, which is also valid in
YAML's double-quoted style.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

# Unambiguous: every reader resolves these to text, except for the reserved words.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_WORDS = frozenset(
    ("y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan", "inf", "nil")
)
# Characters not printable in YAML, and line breaks specific to YAML.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
# A key without `?` must be on one line of at most 1,024 characters.
_LONGEST_KEY = 1000


def dump(value: Any) -> str:
    """Return a JSON value as a YAML document. Its depth is bounded as `moorage.api.bounds` says."""
    parts: list[str] = []
    if isinstance(value, dict) and value:
        _add_map(parts, value, "", "")
    elif isinstance(value, list) and value:
        _add_list(parts, value, "", "")
    else:
        parts += (_scalar(value), "\n")
    return "".join(parts)


def _add_map(parts: list[str], entries: dict[str, Any], first: str, indent: str) -> None:
    """Add the lines of a map; `first` is the text before its first key."""
    lead = first
    for key, value in entries.items():
        text = _text(key)
        parts += (lead, text, ":") if len(text) <= _LONGEST_KEY else (
            lead, "? ", text, "\n", indent, ":"
        )  # fmt: skip
        lead = indent
        if isinstance(value, dict) and value:
            parts.append("\n")
            _add_map(parts, value, indent + "  ", indent + "  ")
        elif isinstance(value, list) and value:
            parts.append("\n")
            _add_list(parts, value, indent, indent)
        else:
            parts += (" ", _scalar(value), "\n")


def _add_list(parts: list[str], items: list[Any], first: str, indent: str) -> None:
    lead = first
    for item in items:
        if isinstance(item, dict) and item:
            _add_map(parts, item, lead + "- ", indent + "  ")
        elif isinstance(item, list) and item:
            _add_list(parts, item, lead + "- ", indent + "  ")
        else:
            parts += (lead, "- ", _scalar(item), "\n")
        lead = indent


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if value is True:
        return "true"
    if value is False:
        return "false"
    if value is None:
        return "null"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    return "[]" if isinstance(value, list) else "{}"


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = msgspec.json.encode(text).decode()
    return _UNPRINTABLE.sub(_escaped, quoted)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _float(value: float) -> str:
    """Format a float; YAML 1.1 requires a decimal point before an exponent."""
    text = repr(value)
    mantissa, exponent, rest = text.partition("e")
    return f"{mantissa}.0e{rest}" if exponent and "." not in mantissa else text
