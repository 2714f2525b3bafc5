"""Regular expressions: find, findAll. Source: API docs "Kubernetes regex library"."""

from __future__ import annotations

import re2

from moorage.apiserver.cel.library.declaring import Signature, Type, method
from moorage.apiserver.cel.library.meter import make_room

_MATCH_CHARACTERS = 50
"""How many characters count for a match: 200,000 matches take a second."""


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    text, texts = Type.STRING, Type.List(Type.STRING)
    return [
        method("find", [text, text], text, _find),
        method("findAll", [text, text], texts, _find_all),
        method("findAll", [text, text, Type.INT], texts, _find_all),
    ]


def _find(text: str, pattern: str) -> str:
    match = _compiled(pattern).search(text)
    return match[0] if match else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    # Bytes: the search in a text converts the offsets of each match, which takes most of its time.
    content = text.encode()
    found: list[str] = []
    for match in _compiled(pattern).finditer(content):
        if len(found) == limit:
            break
        start, end = match.span()
        if start == end and start < len(content) and content[start] & 0xC0 == 0x80:
            # An empty match inside a character.
            continue
        make_room(_MATCH_CHARACTERS)
        found.append(content[start:end].decode())
    return found


def _compiled(pattern: str) -> re2._Regexp:
    try:
        return re2.compile(pattern)
    except re2.error as error:
        raise ValueError(f"Illegal regex: {error}") from error
