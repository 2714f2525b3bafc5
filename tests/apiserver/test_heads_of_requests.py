"""Heads of requests: what headers say, kept for the next equal ones within bounds."""

from __future__ import annotations

from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from moorage.api.errors import BadRequestError, UnauthorizedError
from moorage.apiserver.server.heads import RequestHead, RequestHeads, check_text


class Asked:
    """A request as the HTTP library passes it."""

    def __init__(self, *headers: tuple[str, bytes], path: str = "/api", query: str = "") -> None:
        self.raw_headers = tuple((name.encode(), value) for name, value in headers)
        self.headers = CIMultiDictProxy(CIMultiDict(
            [(name, value.decode(errors="surrogateescape")) for name, value in headers]
        ))  # fmt: skip
        self.path, self.query_string = path, query


def of(asked: Any, known: RequestHeads | None = None) -> RequestHead:
    return (known or RequestHeads()).of(asked)


def test_what_headers_say() -> None:
    head = of(Asked(("Authorization", b"Bearer x"), ("ACCEPT", b"a/b"), ("user-agent", b"curl/8")))
    assert head == RequestHead("x", "a/b", "curl/8", is_impersonating=False)
    assert head.is_of_people
    assert of(Asked()) == RequestHead(None, "", "", is_impersonating=False)
    assert not of(Asked(("User-Agent", b"kubectl/1 curl"))).is_of_people
    assert of(Asked(("impersonate-User", b"bob"))).is_impersonating
    token = b"base64url.bearer.authorization.k8s.io.eA"
    socket = Asked(("Sec-WebSocket-Protocol", token), ("Authorization", b"Bearer other"))
    assert of(socket).token == "x"


def test_equal_heads_are_parsed_once_and_others_apart() -> None:
    known = RequestHeads()
    first = of(Asked(("Authorization", b"Bearer x")), known)
    assert of(Asked(("Authorization", b"Bearer x")), known) is first
    assert of(Asked(("Authorization", b"Bearer y")), known).token == "y"
    assert of(Asked(("Authorization", b"Bearer x"), ("Impersonate-User", b"b")), known) != first


def test_what_is_kept_is_bounded() -> None:
    known = RequestHeads(3)
    for number in range(10):
        of(Asked(("Accept", str(number).encode())), known)
        assert known.kept <= 3
    count = known.kept
    long = Asked(("X-Padding", b"x" * 3000))
    assert of(long, known) == of(long, known)
    assert known.kept == count


def test_text_that_is_not_utf_8_is_refused_but_in_a_user_agent() -> None:
    assert of(Asked(("User-Agent", b"\xff"), ("X-Name", "é".encode()))).user_agent == "\udcff"
    known = RequestHeads()
    for _ in range(2):
        with pytest.raises(BadRequestError, match="headers must be UTF-8"):
            of(Asked(("X-Name", b"\xff")), known)
    for asked in (Asked(path="/\udcff"), Asked(query="a=\udcff")):
        with pytest.raises(BadRequestError, match="path and query must be UTF-8"):
            check_text(asked)  # type: ignore[arg-type]
    check_text(Asked(path="/é", query="a=é"))  # type: ignore[arg-type]


def test_a_token_that_cannot_be_read() -> None:
    asked = Asked(("Sec-WebSocket-Protocol", b"base64url.bearer.authorization.k8s.io.!"))
    with pytest.raises(UnauthorizedError):
        of(asked)
