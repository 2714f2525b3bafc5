"""Answers: their forms, their bytes on the connection, and clients that do not read."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import HttpVersion10, HttpVersion11

from moorage.api.errors import NotFoundError, StatusError, TooManyRequestsError, UnauthorizedError
from moorage.apiserver.endpoints.negotiation import Representation
from moorage.apiserver.endpoints.replies import (
    LIMITS,
    DirectResponse,
    Reply,
    ReplyLimits,
    Sender,
    error_reply,
    formed,
    json_reply,
    not_found_page,
    overloaded,
    prettified,
    text_reply,
)
from moorage.apiserver.registry.codec import Media
from moorage.wire.serving import Budget

_YAML = Representation(media=Media.YAML)


def test_documents_and_texts() -> None:
    reply = json_reply({"a": 1}, 201)
    assert (reply.body, reply.status, reply.content_type) == (b'{"a":1}\n', 201, "application/json")
    assert json_reply([]).status == 200
    text = text_reply("é")
    assert (text.body, text.status) == ("é".encode(), 200)
    assert text.content_type == "text/plain; charset=utf-8"
    page = not_found_page()
    assert (page.body, page.status) == (b"404 page not found\n", 404)


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (NotFoundError.of("pods", "a"), {}),
        (UnauthorizedError(), {"WWW-Authenticate": 'Bearer realm="moorage"'}),
        (TooManyRequestsError("busy", {"retryAfterSeconds": 3}), {"Retry-After": "3"}),
        (StatusError("now", {"retryAfterSeconds": 0}), {"Retry-After": "0"}),
    ],
)
def test_an_error_is_a_status(error: StatusError, headers: dict[str, str]) -> None:
    reply = error_reply(error)
    assert (reply.status, reply.headers) == (error.status_code, headers)
    assert reply.body.endswith(b"}\n")
    assert b'"kind":"Status"' in reply.body
    yaml = error_reply(error, _YAML)
    assert (yaml.status, yaml.content_type) == (error.status_code, "application/yaml")
    assert b"kind: Status\n" in yaml.body


def test_forms() -> None:
    plain = formed(b'{"a":1}', Representation(), 201)
    yaml = formed(b'{"a":1}', _YAML, 201)
    assert (plain.body, plain.content_type) == (b'{"a":1}', "application/json")
    assert (yaml.body, yaml.content_type) == (b"a: 1\n", "application/yaml")
    assert plain.status == yaml.status == 201
    assert plain.is_compressible is yaml.is_compressible is True


@pytest.mark.parametrize(
    ("is_wanted", "is_negotiated"), [(True, False), (False, True), (True, True), (False, False)]
)
def test_json_is_indented_for_people(is_wanted: bool, is_negotiated: bool) -> None:
    reply = Reply(b'{"a":1}', is_indented=is_negotiated)
    body = prettified(reply, is_wanted=is_wanted).body
    assert body == (b'{\n  "a": 1\n}' if is_wanted or is_negotiated else b'{"a":1}')
    assert prettified(text_reply("{ }"), is_wanted=is_wanted).body == b"{ }"
    for unchanged in (Reply(b"", 304), Reply(b'{"a":1}', is_final=True)):
        assert prettified(unchanged, is_wanted=is_wanted).body in (b"", b'{"a":1}')


def test_overload_reply_asks_to_retry() -> None:
    reply = overloaded()
    assert (reply.status, reply.headers) == (429, {"Retry-After": "1"})
    assert reply.body == b"Too many requests, please try again later.\n"


class Connection:
    """A request whose client reads when the test says so, and what was written to it."""

    def __init__(self, method: str = "GET", **headers: str) -> None:
        self.method = method
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.keep_alive = True
        self.version = HttpVersion11
        self.written = b""
        self.drains = 0
        self.is_closing = False
        self.is_aborted = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.transport: Any = SimpleNamespace(
            write=self._write,
            writelines=lambda parts: self._write(b"".join(parts)),
            is_closing=lambda: self.is_closing,
            abort=self._abort,
        )
        self.protocol = SimpleNamespace(writing_paused=False)
        self.writer = SimpleNamespace(drain=self._drain)

    def _write(self, data: bytes) -> None:
        self.written += bytes(data)

    def _abort(self) -> None:
        self.is_aborted = True

    async def _drain(self) -> None:
        self.drains += 1
        await self.reads.wait()

    async def send(
        self, reply: Reply, *, done: Any = None, limits: ReplyLimits = LIMITS
    ) -> tuple[bytes, bytes]:
        """Head and body of an answer, as written."""
        stand_in: Any = self
        await DirectResponse(reply, "id-1", done, limits=limits).prepare(stand_in)
        head, _, body = self.written.partition(b"\r\n\r\n")
        return head, body


async def test_the_head_of_an_answer() -> None:
    reply = Reply(b"{}", 404, warnings=["two  blanks", 'a "quoted\\" one\nover two\r\nlines'])
    head, body = await Connection().send(reply)
    lines = head.decode().split("\r\n")
    date = lines.pop(-2)
    assert re.fullmatch(r"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", date)
    assert lines == [
        "HTTP/1.1 404 Not Found", "Audit-Id: id-1", "Content-Type: application/json",
        "Cache-Control: no-cache, private", 'Warning: 299 - "two  blanks"',
        'Warning: 299 - "a \\"quoted\\\\\\" one over two lines"', "Content-Length: 2",
    ]  # fmt: skip
    assert body == b"{}"


async def test_headers_of_a_reply_and_an_unknown_status() -> None:
    connection = Connection()
    connection.keep_alive = False
    headers = {"Cache-Control": "public", "Etag": '"x"'}
    head, _ = await connection.send(Reply(b"", 299, "text/plain", headers))
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 299 "
    assert "Cache-Control: public" in lines
    assert "Cache-Control: no-cache, private" not in lines
    assert 'Etag: "x"' in lines
    assert lines[-2:] == ["Connection: close", "Content-Length: 0"]


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_head_request_has_no_body(size: int) -> None:
    head, body = await Connection("HEAD").send(Reply(b"x" * size))
    assert f"Content-Length: {size}".encode() in head
    assert body == b""


@pytest.mark.parametrize("size", [65536, 65537, 200_000])
async def test_a_large_body_arrives_whole(size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    _, body = await Connection().send(Reply(content))
    assert body == content


@pytest.mark.parametrize(("size", "drains"), [(10, 1), (200_000, 4)])
async def test_a_slow_client_is_waited_for(size: int, drains: int) -> None:
    connection = Connection()
    connection.protocol.writing_paused = True
    connection.reads.clear()
    ended: list[str] = []
    sending = asyncio.create_task(
        connection.send(Reply(b"x" * size), done=lambda: ended.append("done"))
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert not sending.done()
    assert (connection.drains, ended) == (1, [])
    connection.reads.set()
    _, body = await sending
    assert (len(body), connection.drains, ended) == (size, drains, ["done"])


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_client_that_never_reads_is_disconnected(size: int) -> None:
    limits = ReplyLimits(patience_s=0.01, slowest_bytes_s=1e9)
    connection = Connection()
    connection.protocol.writing_paused = True
    connection.reads.clear()
    with pytest.raises(ConnectionResetError, match="does not read"):
        await connection.send(Reply(b"x" * size), limits=limits)
    assert connection.is_aborted


@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_client_that_has_gone(size: int) -> None:
    connection = Connection()
    connection.transport = None
    ended: list[str] = []
    with pytest.raises(ConnectionResetError, match="gone"):
        await connection.send(Reply(b"x" * size), done=lambda: ended.append("done"))
    assert ended == ["done"]


async def test_nothing_more_is_written_to_a_client_that_goes_meanwhile() -> None:
    connection = Connection()
    connection.is_closing = True
    with pytest.raises(ConnectionResetError, match="gone"):
        await connection.send(Reply(b"x" * 200_000))
    assert not connection.written


_SMALL, _LARGE = 65536, 65537


async def _sent(
    sender: Sender, size: int, share: str, connection: Connection | None = None, **reply: Any
) -> tuple[int, Any]:
    stand_in: Any = connection or Connection()
    response = sender.response(stand_in, Reply(b"x" * size, **reply), "id", share)
    return response.status, response


async def test_large_answers_count_until_they_are_sent() -> None:
    budget = Budget(total=10 * _LARGE, per_user=2 * _LARGE)
    sender = Sender(budget=budget)
    alice, bob = "alice", "bob"
    first = (await _sent(sender, _LARGE, alice))[1]
    assert budget.held == _LARGE
    await _sent(sender, _LARGE, alice)
    assert (await _sent(sender, _LARGE, alice))[0] == 429
    assert (await _sent(sender, _SMALL, alice))[0] == 200
    assert (await _sent(sender, _LARGE, bob))[0] == 200
    assert (await _sent(sender, _LARGE, ""))[0] == 200
    assert budget.held == 3 * _LARGE
    connection: Any = Connection()
    await first.prepare(connection)
    assert budget.held == 2 * _LARGE
    assert (await _sent(sender, _LARGE, alice))[0] == 200


@pytest.mark.parametrize(
    ("size", "accepted", "is_compressible", "is_packed"),
    [(131_073, "gzip, br", True, True), (131_072, "gzip", True, False),
     (131_073, "br", True, False), (131_073, "gzip;q=0", True, False),
     (131_073, "gzip", False, False)],
)  # fmt: skip
async def test_lists_are_compressed_if_the_client_accepts_gzip(
    size: int, accepted: str, is_compressible: bool, is_packed: bool
) -> None:
    connection = Connection(Accept_Encoding=accepted)
    stand_in: Any = connection
    _, response = await _sent(Sender(), size, "", connection, is_compressible=is_compressible)
    await response.prepare(stand_in)
    head, _, body = connection.written.partition(b"\r\n\r\n")
    assert (b"Content-Encoding: gzip" in head) is is_packed
    assert (b"Vary: Accept-Encoding" in head) is is_packed
    assert (zlib.decompress(unchunked(body), wbits=31) if is_packed else body) == b"x" * size


@dataclass
class Long:
    """A long body: its pieces, and a fault after them."""

    parts: tuple[bytes, ...]
    held_bytes: int = 100
    is_broken: bool = False

    def pieces(self, *, is_indented: bool) -> Iterator[bytes]:
        yield from self.parts
        if self.is_broken:
            raise ValueError("no more")
        if is_indented:
            yield b"\n"


def unchunked(body: bytes) -> bytes:
    """What a client reads from the chunks of a complete body."""
    content = b""
    while True:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        content += rest[:length]
        assert rest[length : length + 2] == b"\r\n"
        body = rest[length + 2 :]
        if not length:
            assert not body
            return content


@pytest.mark.parametrize("accepted", ["", "gzip"])
@pytest.mark.parametrize("is_indented", [False, True])
async def test_a_long_body_is_sent_in_chunks(accepted: str, is_indented: bool) -> None:
    connection = Connection(Accept_Encoding=accepted)
    stand_in: Any = connection
    parts = (b"{", b"x" * 300_000, b"}")
    reply = Reply(b"", long=Long(parts), is_compressible=True, is_indented=is_indented)
    response = Sender().response(stand_in, reply, "id", "")
    await response.prepare(stand_in)
    head, _, body = connection.written.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert b"Content-Length" not in head
    assert (b"Content-Encoding: gzip" in head) is bool(accepted)
    body = unchunked(body)
    expected = b"".join(parts) + (b"\n" if is_indented else b"")
    assert (zlib.decompress(body, wbits=31) if accepted else body) == expected
    assert response.keep_alive


async def test_a_client_of_http_1_0_reads_a_long_body_to_the_end_of_the_connection() -> None:
    connection = Connection()
    connection.version = HttpVersion10
    stand_in: Any = connection
    response = Sender().response(stand_in, Reply(b"", long=Long((b"ab", b"c"))), "id", "")
    await response.prepare(stand_in)
    head, _, body = connection.written.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert b"Transfer-Encoding" not in head
    assert (body, response.keep_alive) == (b"abc", False)


async def test_a_long_body_counts_until_it_is_sent_or_breaks() -> None:
    budget = Budget(total=10**9, per_user=10**9)
    sender = Sender(budget=budget)
    stand_in: Any = Connection()
    for is_broken in (False, True):
        long = Long((b"abc",), 100, is_broken)
        response = sender.response(stand_in, Reply(b"", long=long), "id", "alice")
        assert budget.held == 100
        if is_broken:
            with pytest.raises(ValueError, match="no more"):
                await response.prepare(stand_in)
        else:
            await response.prepare(stand_in)
        assert budget.held == 0


async def test_an_end_of_file_is_not_written_twice() -> None:
    connection = Connection()
    stand_in: Any = connection
    response = DirectResponse(Reply(b""), "id")
    await response.prepare(stand_in)
    written = connection.written
    await response.write_eof()
    await response.write_eof()
    assert connection.written == written
