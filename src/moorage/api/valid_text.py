"""Text that can be sent: names that programs of a pod chose need not be UTF-8.

Python holds their bytes as surrogates, which no JSON can carry. Source: Go's `encoding/json`, which
writes U+FFFD for them.
"""

from __future__ import annotations

import re

_SURROGATES = re.compile("[\ud800-\udfff]")


def valid_text(text: str) -> str:
    """Return the text with U+FFFD for all that is not Unicode."""
    return _SURROGATES.sub("\ufffd", text)
