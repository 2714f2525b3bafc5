"""Shortened lists: the first entries, with a count of the rest."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 3


def shortened(entries: Sequence[str]) -> str:
    """Format a list as `a,b,c + 2 more...`; empty for no entries."""
    text = ",".join(entries[:_SHOWN])
    hidden = len(entries) - _SHOWN
    return f"{text} + {hidden} more..." if hidden > 0 else text
