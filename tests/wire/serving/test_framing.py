"""Framing: it knows where requests end, or says that it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from unittest.mock import Mock

import pytest
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import HttpProcessingError
from hypothesis import given
from hypothesis import strategies as st

from moorage.wire.serving.connection import Framing

GET = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nAccept: a\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"


def _after(*pieces: bytes) -> Framing:
    framing = Framing()
    for piece in pieces:
        framing.feed(piece)
    return framing


@pytest.mark.parametrize(
    ("pieces", "is_between", "whole"),
    [
        ((), True, None),
        ((GET,), True, GET),
        ((GET, b""), True, GET),
        ((GET, POST), True, None),
        ((POST, GET), True, GET),
        ((POST[:-2],), False, None),
        ((POST[:-2], b"b", b"c"), True, None),
        ((POST[:-2], b"bcd"), False, None),
        ((POST[:-3], b"abc", GET), True, GET),
        ((b"PUT / HTTP/1.1\r\nCONTENT-LENGTH:\t1 \r\n\r\na",), True, None),
        # Given up, for good.
        ((GET[:-1], GET[-1:], GET), False, None),
        ((GET + GET,), False, None),
        ((GET + b"G", GET[1:]), False, None),
        ((b"\r\n" + GET,), False, None),
        ((b"get / HTTP/1.1\r\nA: b\nContent-Length: 3\r\n\r\n",), False, None),
        ((b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",), False, None),
        ((b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",), False, None),
        ((b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",), False, None),
        ((b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",), False, None),
        ((b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",), False, None),
        ((b"PUT / HTTP/1.1\r\nA: b\n\rB: c\r\n\r\n",), False, None),
        ((b"PUT / HTTP/1.1\r\nContent-Length: +1\r\n\r\na",), False, None),
        ((b"PUT / HTTP/1.1\r\nContent-Length : 1\r\n\r\na",), False, None),
    ],
)  # fmt: skip
def test_bytes_that_end_with_a_whole_request(
    pieces: tuple[bytes, ...], is_between: bool, whole: bytes | None
) -> None:
    framing = _after(*pieces)
    assert (framing.is_between, framing.whole) == (is_between, whole)


_FIELDS = st.sampled_from([
    b"Host: x", b"Content-Length: 3", b"Content-Length: 5", b"Content-Length: 27",
    b"Transfer-Encoding: gzip", b"Upgrade: x\r\nConnection: upgrade",
    b"content-length: 0", b"Content-Length: 3, 3",
    b"Content-Length:3\t", b"Content-Length : 3", b" folded", b"A: b\nContent-Length: 3",
    b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"X: \r", b"A: content-length: 3",
    b"Connection: keep-alive", b"",
])  # fmt: skip
_LINES = st.sampled_from(
    [b"GET /a HTTP/1.1", b"POST /b HTTP/1.1", b"GET /c HTTP/1.0", b"\r\nGET / "]
)
_REQUESTS = st.builds(
    lambda line, fields, end, body: b"\r\n".join([line, *fields]) + end + body,
    _LINES,
    st.lists(_FIELDS, max_size=4),
    st.sampled_from([b"\r\n\r\n", b"\n\n", b"\r\n"]),
    st.sampled_from([b"", b"abc", b"0\r\n\r\n", b"GET /d HTTP/1.1\r\n\r\n"]),
)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@given(
    requests=st.lists(_REQUESTS, min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 400), max_size=3),
)
def test_a_request_after_which_another_follows_has_ended_for_the_parser_too(
    loop: asyncio.AbstractEventLoop, requests: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(requests)
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    framing = Framing()
    parser = HttpRequestParser(Mock(), loop, 2**16, max_msg_queue_size=100)
    try:
        for start, end in pairwise(places):
            framing.feed(data[start:end])
            parser.feed_data(data[start:end])
        if framing.is_between:
            messages, *_ = parser.feed_data(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
            assert [message.path for message, _ in messages] == ["/next"]
    except HttpProcessingError:
        # The connection is closed after the refusal.
        return
