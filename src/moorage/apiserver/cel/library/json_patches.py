"""JSON patches: jsonpatch.escapeKey. Source: API docs "Mutating Admission Policy"."""

from __future__ import annotations

from moorage.apiserver.cel.library.declaring import Signature, Type, function


def functions() -> list[Signature]:
    """Return the signatures of the library."""
    return [function("jsonpatch.escapeKey", [Type.STRING], Type.STRING, _escape)]


def _escape(key: str) -> str:
    """Return a key as a part of a JSON pointer. Source: RFC 6901."""
    return key.replace("~", "~0").replace("/", "~1")
