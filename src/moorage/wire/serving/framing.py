"""Framing of requests: whether the bytes received on a connection end with a whole request.

It reads only what a plain request has: a head with at most one Content-Length. At anything else
(chunked bodies, upgrades, pipelined requests, odd line ends) it gives up for the rest of the
connection, so that its answer is never wrong. The parser refuses what is ambiguous, such as two
lengths, and then the connection ends. Hot path: 1 µs per request (bench/requests.py).
Source: RFC 9112 §6.
"""

from __future__ import annotations

import re

_HEAD_END = b"\r\n\r\n"
_BEGIN = re.compile(rb"[A-Z]+ /")
# Folded lines, and fields (Transfer-Encoding, Upgrade, Expect) after which more than a body of
# known length may follow.
_UNUSUAL = re.compile(rb"\r\n(?:[ \t]|[Tt][Rr][Aa][Nn]|[Uu][Pp]|[Ee][Xx])")
_LENGTH = re.compile(rb"\r\n[Cc][Oo][Nn][Tt][Ee][Nn][Tt]-[Ll]([^\r\n]*)")
_LENGTH_VALUE = re.compile(rb"(?i:ength):[ \t]*([0-9]{1,18})[ \t]*")
_UNKNOWN = -1


class Framing:
    """Follows the requests of one connection.

    `whole`: the last bytes fed, if they are one request without a body; else None.
    """

    __slots__ = ("_left_bytes", "whole")

    def __init__(self) -> None:
        self._left_bytes = 0
        self.whole: bytes | None = None

    @property
    def is_between(self) -> bool:
        """Return whether the bytes fed end with a whole request, so that the next one follows."""
        return self._left_bytes == 0

    def feed(self, data: bytes) -> None:
        """Follow the next bytes of the connection."""
        if not data or self._left_bytes == _UNKNOWN:
            return
        self.whole = None
        if self._left_bytes:
            left = self._left_bytes - len(data)
        else:
            end = data.find(_HEAD_END)
            rest = len(data) - end - len(_HEAD_END)
            # Hot path: a write whose body arrives with its head, as clients spell it.
            if end > 0 and rest and data.find(b"\r\nContent-Length: %d\r\n" % rest, 0, end + 2) > 0:
                return
            length = _body_length(data[: max(end, 0)])
            left = _UNKNOWN if length < 0 else length - rest
            if not left and not length:
                self.whole = data
        self._left_bytes = max(left, _UNKNOWN)


def _body_length(head: bytes) -> int:
    """Return the length of the body that follows a head; -1 if it is unknown."""
    if not _BEGIN.match(head) or _UNUSUAL.search(head) or head.count(b"\n") != head.count(b"\r\n"):
        return _UNKNOWN
    lengths = _LENGTH.findall(head)
    if not lengths:
        return 0
    value = _LENGTH_VALUE.fullmatch(lengths[0])
    return int(value[1]) if value is not None and len(lengths) == 1 else _UNKNOWN
