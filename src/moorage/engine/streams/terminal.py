"""Terminal sizes from a client: JSON objects in a byte stream, split at any point.

    {"Width":80,"Height":24}
    {"Width":81,…

Source: client-go `remotecommand.TerminalSize`.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

_LIMIT_CHARACTERS = 4096
_OBJECT = re.compile(rb"\{[^{}]*\}")

Length = Annotated[int, msgspec.Meta(gt=0, le=65535)]


class Size(msgspec.Struct, frozen=True):
    """A terminal's size in characters."""

    width: Length = msgspec.field(name="Width")
    height: Length = msgspec.field(name="Height")


class SizeReader:
    """Parses a byte stream into sizes. Invalid objects are ignored."""

    def __init__(self) -> None:
        self._pending = b""
        self._decoder = msgspec.json.Decoder(Size)

    def feed(self, data: bytes) -> list[Size]:
        """Add bytes. Returns the sizes that are complete, in their order."""
        self._pending = (self._pending + data)[-_LIMIT_CHARACTERS:]
        sizes, end = [], 0
        for match in _OBJECT.finditer(self._pending):
            end = match.end()
            try:
                sizes.append(self._decoder.decode(match[0]))
            except msgspec.DecodeError:
                continue
        self._pending = self._pending[end:]
        return sizes
