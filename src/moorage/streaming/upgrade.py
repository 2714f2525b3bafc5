"""What an HTTP upgrade asks for and how its two heads are written.

    GET|POST … + Connection: Upgrade + Upgrade: websocket | SPDY/3.1   →   101, then raw bytes

Only the headers in the tables below cross a hop: the rest is between two neighbours, and the
caller's credentials must not reach the next one. Source: RFC 9110 §7.8, RFC 6455 §4; Kubernetes
`httpstream` (header `X-Stream-Protocol-Version`, one line for each version offered).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

SPDY = "SPDY/3.1"
WEBSOCKET = "websocket"
PROTOCOL_VERSION = "X-Stream-Protocol-Version"
SUBPROTOCOL = "Sec-WebSocket-Protocol"
TOKEN_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."

_REQUEST_HEADERS = (
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Extensions",
)
_ANSWER_HEADERS = (
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Extensions",
)

_STATUS = re.compile("[0-9]{3}")

Headers = Mapping[str, str]
HeaderLines = tuple[tuple[str, str], ...]


class HeadError(ValueError):
    """The head of an HTTP answer that is none."""


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """Status line and headers of an HTTP answer."""

    status: int
    reason: str
    headers: CIMultiDictProxy[str]


def upgrade_of(request: web.BaseRequest) -> str:
    """The protocol the request wants to change to, as this module writes it; empty for none."""
    asked = request.headers.getall("Connection", [])
    if not any("upgrade" in line.lower() for line in asked):
        return ""
    wanted = request.headers.get("Upgrade", "")
    return next((known for known in (SPDY, WEBSOCKET) if known.lower() == wanted.lower()), wanted)


def offered_versions(request: web.BaseRequest) -> tuple[str, ...]:
    """The stream protocol versions offered, best first, of a request without websocket."""
    return _listed(request.headers.getall(PROTOCOL_VERSION, []))


def offered_subprotocols(request: web.BaseRequest) -> tuple[str, ...]:
    """The websocket subprotocols offered, without the one that only carries a bearer token."""
    offered = _listed(request.headers.getall(SUBPROTOCOL, []))
    return tuple(name for name in offered if not name.startswith(TOKEN_SUBPROTOCOL))


def passed_on(request: web.BaseRequest) -> HeaderLines:
    """The headers of an upgrade request that its next hop must see: no credentials, no token."""
    lines = [(name, value) for name in _REQUEST_HEADERS if name != SUBPROTOCOL
             for value in request.headers.getall(name, [])]  # fmt: skip
    if subprotocols := offered_subprotocols(request):
        lines.append((SUBPROTOCOL, ", ".join(subprotocols)))
    return tuple(lines)


def passed_back(answer: AnswerHead) -> HeaderLines:
    """The headers of a 101 answer that the client must see."""
    return tuple(
        (name, value) for name in _ANSWER_HEADERS for value in answer.headers.getall(name, [])
    )


def request_head(
    method: str, target: str, host: str, protocol: str, lines: Iterable[tuple[str, str]]
) -> bytes:
    """The head of an upgrade request. Raises ValueError for a header with a line break."""
    upgrade = (("Host", host), ("Connection", "Upgrade"), ("Upgrade", protocol))
    return _head(f"{method} {target} HTTP/1.1", (*upgrade, *lines, ("Content-Length", "0")))


def switching_head(protocol: str, lines: Iterable[tuple[str, str]]) -> bytes:
    """The head that accepts an upgrade."""
    upgrade = (("Connection", "Upgrade"), ("Upgrade", protocol))
    return _head("HTTP/1.1 101 Switching Protocols", (*upgrade, *lines))


def parse_answer_head(text: bytes) -> AnswerHead:
    """Read an answer's head, up to its empty line. Raises HeadError."""
    first, *rest = text.decode("latin-1").split("\r\n")
    version, _, status = first.partition(" ")
    code, _, reason = status.partition(" ")
    if not version.startswith("HTTP/1.") or not _STATUS.fullmatch(code):
        raise HeadError(f"not an HTTP answer: {first[:80]!r}")
    headers: CIMultiDict[str] = CIMultiDict()
    for line in filter(None, rest):
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HeadError(f"not an HTTP header: {line[:80]!r}")
        headers.add(name, value.strip())
    return AnswerHead(int(code), reason, CIMultiDictProxy(headers))


def _head(first: str, lines: Iterable[tuple[str, str]]) -> bytes:
    whole = [first, *(f"{name}: {value}" for name, value in lines)]
    if any("\r" in line or "\n" in line for line in whole):
        raise ValueError("a header must not contain a line break")
    text = "".join(f"{line}\r\n" for line in whole)
    # Bytes of a header that are no text have come through the HTTP server as surrogates.
    return f"{text}\r\n".encode(errors="surrogateescape")


def _listed(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for line in lines for part in line.split(",") if (name := part.strip()))
