"""Asking a server for an upgrade, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cluster.access.identities import Authority, Subject
from moorage.wire.streaming.connection import Connection, Deadlines
from moorage.wire.streaming.dial import DialError, Refused, Upgraded, Upstream, connect, dial
from moorage.wire.streaming.upgrade import SPDY
from tests.wire.streaming.pairs import read_exactly

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nX-Stream-Protocol-Version: v4\r\n\r\n"


def says(answer: bytes, *, closes: bool = True) -> Talk:
    """A server that reads a head and answers these bytes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        if not closes:
            await reader.read()

    return talk


@asynccontextmanager
async def serving(talk: Talk, socket: Path | None = None) -> AsyncIterator[Upstream]:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    if socket is not None:
        server: Any = await asyncio.start_unix_server(served, socket)
        url = "http://engine/exec/token"
    else:
        server = await asyncio.start_server(served, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/exec/token"
    async with server:
        yield Upstream(url=url, socket=socket)


async def answer_of(talk: Talk, **limits: float) -> Refused:
    async with (
        serving(talk) as upstream,
        dial(upstream, "POST", SPDY, deadlines=Deadlines(**limits)) as answer,
    ):
        assert isinstance(answer, Refused)
        return answer


async def refusal_of(talk: Talk, **limits: float) -> str:
    with pytest.raises(DialError) as refusal:
        await answer_of(talk, **limits)
    return refusal.value.message


async def test_an_upgrade_leaves_a_byte_stream() -> None:
    asked = b""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.readuntil(b"\r\n\r\n")
        # What comes right behind the head belongs to the stream.
        writer.write(SWITCH + b"early")
        writer.write(await reader.readexactly(4))

    async with serving(talk) as upstream:
        lines = [("X-Stream-Protocol-Version", "v4")]
        async with dial(upstream, "POST", SPDY, lines) as answer:
            assert isinstance(answer, Upgraded)
            assert answer.head.headers["x-stream-protocol-version"] == "v4"
            await answer.connection.write(b"echo")
            assert await read_exactly(answer.connection, 9) == b"earlyecho"
        assert answer.connection.is_closing
    assert asked.startswith(b"POST /exec/token HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"X-Stream-Protocol-Version: v4\r\n" in asked


async def test_a_path_goes_out_as_it_is_escaped() -> None:
    asked: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH)

    async with serving(talk) as upstream:
        escaped = msgspec.structs.replace(upstream, url=f"{upstream.url}/%7Ea%2Fb?command=%2B%20c")
        async with dial(escaped, "GET", SPDY):
            pass
    assert asked == [b"GET /exec/token/%7Ea%2Fb?command=%2B%20c HTTP/1.1\r\n"]


async def test_a_unix_socket_is_dialled_too(tmp_path: Path) -> None:
    async with (
        serving(says(SWITCH), tmp_path / "engine.sock") as upstream,
        dial(upstream, "GET", SPDY) as answer,
    ):
        assert isinstance(answer, Upgraded)
    assert upstream.place == str(tmp_path / "engine.sock")


async def test_an_answer_may_come_byte_by_byte() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in SWITCH + b"x":
            writer.write(bytes((byte,)))
            await writer.drain()

    async with serving(talk) as upstream, dial(upstream, "POST", SPDY) as answer:
        assert isinstance(answer, Upgraded)
        assert await read_exactly(answer.connection, 1) == b"x"


async def test_interim_answers_are_skipped() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"
    async with serving(says(interim + SWITCH)) as upstream, dial(upstream, "POST", SPDY) as answer:
        assert isinstance(answer, Upgraded)
        assert "Link" not in answer.head.headers


def not_found(*headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join(["HTTP/1.1 404 Not Found", *headers, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("answer", "closes", "body"),
    [
        (not_found("Content-Length: 5", body=b"hello, and more"), False, b"hello"),
        (not_found("Content-Length: 0"), False, b""),
        (not_found("Content-Length: 50", body=b"cut off"), True, b"cut off"),
        (not_found(body=b"until the end"), True, b"until the end"),
        (not_found("Transfer-Encoding: chunked", body=b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"),
         False, b"abcde"),
        (not_found("Transfer-Encoding: chunked", body=b"3\r\nabc\r\nZZ\r\n"), True, b"abc"),
        (not_found("Transfer-Encoding: Chunked",
                   body=b"1a\r\n" + b"x" * 26 + b"\r\n2;a\r\nyy\r\n0\r\n\r\n"),
         False, b"x" * 26 + b"yy"),
        (not_found("Transfer-Encoding: chunked", body=b"3\r\nabc\r\n-1\r\n"), True, b"abc"),
        (not_found("Transfer-Encoding: chunked", body=b"ffffffffff\r\nabc"), True, b"abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False, b""),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", False, b""),
    ],
)  # fmt: skip
async def test_refusal_keeps_its_body(answer: bytes, closes: bool, body: bytes) -> None:
    refused = await answer_of(says(answer, closes=closes), dial_s=5)
    assert refused.body == body


async def test_only_the_beginning_of_a_large_refusal_is_read() -> None:
    large = not_found(body=b"x" * (1 << 20))
    assert 65536 <= len((await answer_of(says(large, closes=False), dial_s=5)).body) <= 65536 * 8


@pytest.mark.parametrize(
    ("answer", "says_what"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 101 Swi", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP answer: illegal status line"),
        (b"HTTP/2 200 OK\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nname : x\r\n\r\n", "not an HTTP answer"),
        (not_found("Content-Length: \u00b2", body=b"x"), "bad Content-Length"),
        (not_found("Content-Length: " + "9" * 5000, body=b"x"), "bad Content-Length"),
        (b"HTTP/1.1 \xb2\xb2\xb2 x\r\n\r\n", "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n", "not an HTTP answer: illegal header line"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60000, "Receive buffer too long"),
    ],
)
async def test_invalid_answer_is_an_error(answer: bytes, says_what: str) -> None:
    message = await refusal_of(says(answer), dial_s=5)
    assert message.startswith("error dialing backend: 127.0.0.1:")
    assert says_what in message
    assert "token" not in message


async def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    async with asyncio.timeout(Deadlines().dial_s / 2):
        message = await refusal_of(says(b"", closes=False), dial_s=0.1)
    assert message.endswith("timed out")


async def test_unreachable_server_is_an_error() -> None:
    async with serving(says(b"")) as upstream:
        pass
    with pytest.raises(DialError, match="error dialing backend") as refusal:
        async with dial(upstream, "POST", SPDY):
            pass
    assert refusal.value.status_code == 500
    assert refusal.value.status_reason == ""


@pytest.mark.parametrize("url", ["ftp://x/", "/exec/x", "http://", "http://[", "http://x:port/"])
async def test_invalid_url_is_an_error(url: str) -> None:
    with pytest.raises(DialError, match="error dialing backend"):
        async with dial(Upstream(url=url), "POST", SPDY):
            pass


async def test_invalid_header_is_an_error_without_its_value() -> None:
    async with serving(says(SWITCH)) as upstream:
        with pytest.raises(DialError, match="characters that HTTP forbids") as refusal:
            async with dial(upstream, "POST", SPDY, [("A", "secret\r\nC: d")]):
                pass
    assert "secret" not in str(refusal.value)


async def test_missing_socket_is_named_in_the_error(tmp_path: Path) -> None:
    upstream = Upstream(url="http://engine/", socket=tmp_path / "none.sock")
    with pytest.raises(DialError, match=r"none\.sock"):
        async with dial(upstream, "GET", SPDY):
            pass


async def test_a_server_proves_itself_by_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", datetime.now(UTC))
    pair = authority.issue("engine", Subject("engine", hosts=("engine.test",)))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    known = ssl.create_default_context(cafile=str(authority.pair.certificate))

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await says(SWITCH)(reader, writer)
        writer.close()

    async with await asyncio.start_server(served, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        trusted = Upstream(url=url, ssl=known, server_name="engine.test")
        async with dial(trusted, "POST", SPDY) as answer:
            assert isinstance(answer, Upgraded)
        # Another name than the URL's host has to be said, and no authority is known by itself.
        for upstream in (
            Upstream(url=url, ssl=known), Upstream(url=url, server_name="engine.test"),
        ):  # fmt: skip
            with pytest.raises(DialError, match="certificate verify failed"):
                async with dial(upstream, "POST", SPDY):
                    pass


@pytest.mark.parametrize(
    ("upstream", "place"),
    [
        (Upstream(url="https://host:10250/exec?token=x"), "host:10250"),
        (Upstream(url="http://host/exec"), "host:80"),
        (Upstream(url="http://[", socket=Path("/run/x.sock")), "/run/x.sock"),
        (Upstream(url="http://["), "not a valid URL"),
    ],
)
def test_places_are_named_without_their_path(upstream: Upstream, place: str) -> None:
    assert upstream.place == place


@pytest.mark.parametrize(
    ("upstream", "is_unix", "target", "name"),
    [
        (Upstream(url="http://node/x"), False, ("node", 80), None),
        (Upstream(url="http://node:81/x"), False, ("node", 81), None),
        (Upstream(url="https://node/x"), False, ("node", 443), "node"),
        (Upstream(url="https://node/x", server_name="n1"), False, ("node", 443), "n1"),
        (Upstream(url="http://e/x", server_name="n1", socket=Path("/s")), True, ("/s",), None),
        (Upstream(url="https://e/x", server_name="n1", socket=Path("/s")), True, ("/s",), "n1"),
    ],
)
async def test_where_it_connects_and_whom_it_expects_there(
    monkeypatch: pytest.MonkeyPatch, upstream: Upstream, is_unix: bool, target: tuple[Any, ...],
    name: str | None,
) -> None:  # fmt: skip
    calls: list[tuple[Any, ...]] = []
    context = ssl.create_default_context()

    def record(is_unix: bool) -> Any:
        async def connect(factory: Any, *place: Any, **tls: Any) -> tuple[None, str]:
            calls.append((is_unix, factory, place, tls))
            return None, "connection"

        return connect

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "create_connection", record(False))
    monkeypatch.setattr(loop, "create_unix_connection", record(True))
    connection: Any = await connect(msgspec.structs.replace(upstream, ssl=context))
    assert connection == "connection"
    tls = {"ssl": context if upstream.url.startswith("https") else None, "server_hostname": name}
    assert calls == [(is_unix, Connection, target, tls)]


@pytest.mark.parametrize("slow", ["connect", "_ask"])
async def test_a_deadline_that_passes_is_named(monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    async def hang(*_: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(f"moorage.wire.streaming.dial.{slow}", hang)
    refusal = await refusal_of(says(SWITCH), dial_s=0.05)
    assert refusal.endswith(": timed out")
