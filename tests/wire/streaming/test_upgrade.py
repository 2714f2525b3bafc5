"""Heads of upgrades: what is asked, what crosses a hop, what is refused."""

from __future__ import annotations

import h11
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from moorage.wire.streaming.upgrade import (
    SPDY,
    WEBSOCKET,
    AnswerHead,
    answer_head,
    offered_subprotocols,
    offered_versions,
    passed_back,
    passed_on,
    switching_head,
    upgrade_of,
    upgrade_request,
)

Lines = list[tuple[str, str]]


def sent(protocol: str, *lines: tuple[str, str], target: str = "/") -> bytes:
    """The bytes of an upgrade request."""
    request = upgrade_request("POST", target, "host:1", protocol, lines)
    return h11.Connection(h11.CLIENT).send(request) or b""


def answered(text: bytes) -> AnswerHead:
    """The head of an answer with these bytes."""
    exchange = h11.Connection(h11.CLIENT)
    exchange.send(upgrade_request("POST", "/", "host:1", SPDY, ()))
    exchange.send(h11.EndOfMessage())
    exchange.receive_data(text)
    event = exchange.next_event()
    assert isinstance(event, h11.Response | h11.InformationalResponse)
    return answer_head(event)


def asked(*lines: tuple[str, str]) -> web.Request:
    return make_mocked_request("POST", "/", headers=CIMultiDict(lines))


@pytest.mark.parametrize(
    ("lines", "protocol"),
    [
        ([("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")], SPDY),
        ([("Connection", "upgrade"), ("Upgrade", "spdy/3.1")], SPDY),
        ([("Connection", "keep-alive, Upgrade"), ("Upgrade", "WebSocket")], WEBSOCKET),
        ([("Connection", "keep-alive"), ("Connection", "Upgrade"), ("Upgrade", "websocket")],
         WEBSOCKET),
        ([("Connection", "Upgrade"), ("Upgrade", "h2c")], "h2c"),
        ([("Connection", "Upgrade")], ""),
        ([("Upgrade", "websocket")], ""),
        ([], ""),
    ],
)  # fmt: skip
def test_what_a_request_wants_to_change_to(lines: Lines, protocol: str) -> None:
    assert upgrade_of(asked(*lines)) == protocol


def test_versions_are_offered_in_lines_or_lists() -> None:
    name = "X-Stream-Protocol-Version"
    assert offered_versions(asked((name, "v5.x"), (name, "v4.x, v3.x"))) == ("v5.x", "v4.x", "v3.x")
    assert offered_versions(asked()) == ()


SECRET = "base64url.bearer.authorization.k8s.io.c2VjcmV0"


def test_token_subprotocol_is_not_offered() -> None:
    line = ("Sec-WebSocket-Protocol", f"v5.channel.k8s.io, {SECRET}")
    assert offered_subprotocols(asked(line)) == ("v5.channel.k8s.io",)


def test_only_what_the_next_hop_must_see_is_passed_on() -> None:
    request = asked(
        ("Authorization", "Bearer secret"),
        ("Cookie", "secret"),
        ("Impersonate-User", "root"),
        ("X-Remote-User", "root"),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Host", "here"),
        ("Sec-WebSocket-Key", "k"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Extensions", "e"),
        ("Sec-WebSocket-Protocol", SECRET),
        ("Sec-WebSocket-Protocol", "v4.channel.k8s.io"),
        ("X-Stream-Protocol-Version", "v4.x"),
        ("X-Stream-Protocol-Version", "v3.x"),
    )
    assert sorted(passed_on(request)) == [
        ("Sec-WebSocket-Extensions", "e"),
        ("Sec-WebSocket-Key", "k"),
        ("Sec-WebSocket-Protocol", "v4.channel.k8s.io"),
        ("Sec-WebSocket-Version", "13"),
        ("X-Stream-Protocol-Version", "v3.x"),
        ("X-Stream-Protocol-Version", "v4.x"),
    ]


def test_a_subprotocol_that_is_only_a_token_leaves_no_line() -> None:
    assert passed_on(asked(("Sec-WebSocket-Protocol", SECRET))) == ()


def test_only_what_the_client_must_see_is_passed_back() -> None:
    head = answered(
        b"HTTP/1.1 101 Switching Protocols\r\nSet-Cookie: x\r\nServer: y\r\n"
        b"x-stream-protocol-version: v4.x\r\nSec-WebSocket-Accept: a\r\n"
        b"Sec-WebSocket-Extensions: e\r\nSec-WebSocket-Protocol: p\r\n\r\n"
    )
    assert passed_back(head) == (
        ("X-Stream-Protocol-Version", "v4.x"),
        ("Sec-WebSocket-Protocol", "p"),
        ("Sec-WebSocket-Accept", "a"),
        ("Sec-WebSocket-Extensions", "e"),
    )


def test_an_answers_head_is_text() -> None:
    head = answered(b"HTTP/1.1 404 Not Found\r\nContent-Type:text/plain \r\nA: \xb2: c\r\n\r\n")
    assert (head.status, head.reason) == (404, "Not Found")
    assert dict(head.headers) == {"Content-Type": "text/plain", "A": "\xb2: c"}
    assert answered(b"HTTP/1.0 200\r\n\r\n").reason == ""


def test_a_requests_head() -> None:
    assert sent(SPDY, ("X-Stream", "v4"), target="/exec/n/p/c?a=b") == (
        b"POST /exec/n/p/c?a=b HTTP/1.1\r\nHost: host:1\r\nConnection: Upgrade\r\n"
        b"Upgrade: SPDY/3.1\r\nX-Stream: v4\r\nContent-Length: 0\r\n\r\n"
    )
    assert switching_head(WEBSOCKET, [("A", "b")]) == (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"A: b\r\n\r\n"
    )


@pytest.mark.parametrize("bad", ["a\r\nB: c", "a\nB: c", "a\rB", "a\r\n\r\nGET /"])
def test_headers_cannot_be_smuggled(bad: str) -> None:
    with pytest.raises(h11.LocalProtocolError):
        sent(SPDY, ("A", bad))
    with pytest.raises(h11.LocalProtocolError):
        sent(SPDY, (bad, "a"))
    with pytest.raises(h11.LocalProtocolError):
        sent(SPDY, target=f"/{bad}")
    with pytest.raises(ValueError, match="line break"):
        switching_head(SPDY, [(bad, "a")])


def test_text_of_any_language_goes_through() -> None:
    head = sent(SPDY, ("A", "€"), ("B", b"\xff".decode(errors="surrogateescape")))
    assert b"A: \xe2\x82\xac\r\n" in head
    assert b"B: \xff\r\n" in head
