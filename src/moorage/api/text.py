"""Text of messages and output: counted nouns; foreign text as it may be shown or sent."""

from __future__ import annotations

import re

# Counted nouns of messages: `1 node`, `2 nodes`.


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun; `plural` is given where it is not the noun and an s."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


# Printable text: what others wrote, as a terminal may show it.
#
# A manifest, an event or the output of a program may contain escape sequences, which recolour,
# overwrite or fake what stands around them, and marks that turn the direction of writing.

# What stands between the scheme and a host's name, and all behind a path: a signature or a token.
_USER_INFO = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"(://[^\s?#]*)[?#]\S*")
_MASK = "***"


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


def without_secrets(text: str) -> str:
    """Return a text in whose URLs the user, the password, the query and the fragment are masked."""
    return _QUERY.sub(rf"\1?{_MASK}", _USER_INFO.sub(f"{_MASK}@", text))


# Text that can be sent: names that programs of a pod chose need not be UTF-8.
#
# Python holds their bytes as surrogates, which no JSON can carry. Source: Go's `encoding/json`,
# which writes U+FFFD for them.

_SURROGATES = re.compile("[\ud800-\udfff]")


def valid_text(text: str) -> str:
    """Return the text with U+FFFD for all that is not Unicode."""
    return _SURROGATES.sub("\ufffd", text)
