"""TOML writer, for the subset that configuration files need.

The standard library only reads TOML. Tables follow the plain keys of their parent, and keys keep
their order, so that equal values give equal bytes. Source: TOML 1.0.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

Value = str | bool | int | float | Sequence["Value"] | Mapping[str, "Value"]
Table = Mapping[str, Value]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def write_toml(document: Table) -> str:
    """Return the document as text. Raises TypeError for a value without a TOML form."""
    return "\n".join(_lines(document, ())).strip() + "\n"


def _lines(table: Table, path: tuple[str, ...]) -> Iterator[str]:
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in tables}
    # A table that only holds tables needs no header.
    if path and (plain or not tables):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in tables.items():
        yield from _lines(value, (*path, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: Value) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        inner = (f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{{', '.join(inner)}}}"
    raise TypeError(f"TOML has no form for {value!r}")


def _string(text: str) -> str:
    return f'"{"".join(map(_character, text))}"'


def _character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x20 or code == 0x7F else character
