"""Integer parsing, as Go's `strconv`.

`int()` accepts other scripts' digits, underscores and blanks, and refuses more than 4,300 digits
with an error text of its own.
"""

from __future__ import annotations

import re

_SIGNED = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"[0-9]+")
_INT64 = (-(2**63), 2**63 - 1)
_UINT64 = (0, 2**64 - 1)
# A sign and more digits than any number in range has, leading zeros aside.
_LONGEST = 21


def parse_int(text: str) -> int:
    """Parse a 64-bit integer. Raises ValueError, worded as `strconv.ParseInt`."""
    return _parsed("ParseInt", text, _SIGNED, _INT64)


def parse_uint(text: str) -> int:
    """Parse an unsigned 64-bit integer. Raises ValueError, worded as `strconv.ParseUint`."""
    return _parsed("ParseUint", text, _UNSIGNED, _UINT64)


def _parsed(name: str, text: str, form: re.Pattern[str], limits: tuple[int, int]) -> int:
    if form.fullmatch(text) is None:
        raise ValueError(f'strconv.{name}: parsing "{text}": invalid syntax')
    least, most = limits
    sign = text[:1] if text[:1] in ("+", "-") else ""
    digits = text.removeprefix(sign).lstrip("0") or "0"
    if len(digits) <= _LONGEST:
        number = int(sign + digits)
        if least <= number <= most:
            return number
    raise ValueError(f'strconv.{name}: parsing "{text}": value out of range')
