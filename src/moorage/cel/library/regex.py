"""Regular expressions: find, findAll. Source: API docs "Kubernetes regex library"."""

from __future__ import annotations

import re2

from moorage.cel.library.declaring import Signature, Type, method


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
    found: list[str] = []
    for match in _compiled(pattern).finditer(text):
        if len(found) == limit:
            break
        found.append(match[0])
    return found


def _compiled(pattern: str) -> re2._Regexp:
    try:
        return re2.compile(pattern)
    except re2.error as error:
        raise ValueError(f"Illegal regex: {error}") from error
