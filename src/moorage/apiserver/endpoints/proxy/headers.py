"""Headers of proxied requests and answers: which are passed on.

The caller's credentials stay here, and what belongs to one connection alone. Source: apimachinery
`util/proxy` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiohttp import web

from moorage.wire.streaming.upgrade import AnswerHead

_HOP_BY_HOP = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_KEPT_BACK = frozenset({"authorization", "expect", "sec-websocket-protocol"})
_KEPT_BACK_PREFIXES = ("impersonate-", "x-remote-")
_CORS = frozenset({
    "access-control-allow-credentials", "access-control-allow-headers",
    "access-control-allow-methods", "access-control-allow-origin",
})  # fmt: skip
"""Headers of answers that would open the API server to pages of other origins."""


def request_headers(http: web.BaseRequest, uri: str) -> Iterator[tuple[str, str]]:
    """Yield the headers to pass on: neither those of this connection nor credentials."""
    named = {
        name.strip().lower()
        for line in http.headers.getall("Connection", ())
        for name in line.split(",")
    }
    forwarded_for = []
    for name, value in http.headers.items():
        lower = name.lower()
        if lower == "x-forwarded-for":
            forwarded_for.append(value)
        elif not (
            lower in _HOP_BY_HOP or lower in named or lower in _KEPT_BACK or lower == "host"
            # Servers behind CGI and its like read both spellings as one name.
            or lower.replace("_", "-").startswith(_KEPT_BACK_PREFIXES)
        ):  # fmt: skip
            yield name, value
    peer = http.transport.get_extra_info("peername") if http.transport else None
    yield "X-Forwarded-For", ", ".join([*forwarded_for, *([peer[0]] if peer else ())])
    yield "X-Forwarded-Host", http.host
    yield "X-Forwarded-Proto", http.scheme
    yield "X-Forwarded-Uri", uri


def copied_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of an answer that its client gets."""
    for name, value in headers.items():
        if name.lower() not in _HOP_BY_HOP | _CORS:
            yield name, value


def switching_headers(head: AnswerHead) -> tuple[tuple[str, str], ...]:
    """Return the headers of an answer that switches the protocol."""
    return tuple(
        (name, value) for name, value in head.headers.items() if name.lower() not in _HOP_BY_HOP
    )
