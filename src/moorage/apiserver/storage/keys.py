"""Key ranges: where the keys under a prefix end.

Python compares strings by code point and SQLite's BINARY collation by UTF-8 bytes; both give the
same order.
"""

from __future__ import annotations

_LAST_CODE_POINT = 0x10FFFF
_BEFORE_SURROGATES, _AFTER_SURROGATES = 0xD7FF, 0xE000


def prefix_end(prefix: str) -> str:
    """Return the least string above every string that starts with `prefix`, "" if there is none.

    A suffix such as U+10FFFF is not such a bound: a key may continue after it.
    """
    text = prefix.rstrip(chr(_LAST_CODE_POINT))
    if not text:
        return ""
    last = ord(text[-1])
    following = _AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1
    return text[:-1] + chr(following)
