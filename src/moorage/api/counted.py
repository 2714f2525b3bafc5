"""Counted nouns of messages: `1 node`, `2 nodes`."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun; `plural` is given where it is not the noun and an s."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
