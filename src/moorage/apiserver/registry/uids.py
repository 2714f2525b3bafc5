"""UIDs of new objects: random UUIDs (version 4), made from entropy that is read for many at a time.

A read of entropy is a system call that lets another thread take the interpreter, which costs a
write more than its UID. Hot path: 1 µs per object (bench/requests.py). Source: RFC 9562, §5.4.
"""

from __future__ import annotations

import os

_UID_BYTES = 16
_READ_BYTES = 256 * _UID_BYTES
_VARIANTS = "89ab"


class Uids:
    """Makes the UIDs of one server. Not for use across a fork."""

    def __init__(self) -> None:
        self._digits = ""
        self._at = 0

    def __call__(self) -> str:
        """Return a new UID."""
        if self._at >= len(self._digits):
            self._digits, self._at = os.urandom(_READ_BYTES).hex(), 0
        start, self._at = self._at, self._at + 2 * _UID_BYTES
        text = self._digits[start : self._at]
        variant = _VARIANTS[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"
