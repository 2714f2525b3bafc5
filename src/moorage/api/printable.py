"""Printable text: what others wrote, as a terminal may show it.

A manifest, an event or the output of a program may contain escape sequences, which recolour,
overwrite or fake what stands around them, and marks that turn the direction of writing.
"""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Return a text with escapes, such as `\\\\x1b`, for all that is no printable character.

    Characters of `keep`, such as a newline, stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else repr(character)[1:-1]
        for character in text
    )
