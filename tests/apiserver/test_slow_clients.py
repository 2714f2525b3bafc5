"""Clients that send slowly, read slowly or not at all: others are served meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest

from moorage.apiserver.authentication.authenticator import StaticToken
from moorage.apiserver.endpoints.bodies import BodyLimits
from moorage.apiserver.endpoints.replies import ReplyLimits
from moorage.wire.serving import Limits
from tests.apiserver.running_server import TOKENS, Running, serving

MAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
}
MASTER, ALICE, BOB = "admin-token", "alice-token", "bob-token"
READER = StaticToken("reader-token", "reader", ("readers",))
USERS = (*TOKENS, StaticToken(BOB, "bob", ("dev",)), READER)
WAITS_S = 20.0


class Wire:
    """A connection whose bytes the test writes itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, head: str, body: bytes = b"", token: str = ALICE) -> None:
        lines = f"{head} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        self.writer.write(lines.encode() + body)

    async def status(self) -> int:
        line = await asyncio.wait_for(self.reader.readline(), WAITS_S)
        return int(line.split()[1])

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), WAITS_S)
        first, *lines = head.decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split()[1]), headers, body

    async def ended(self) -> bytes:
        """What is still read until the server ends the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), WAITS_S)
        except (ConnectionResetError, asyncio.IncompleteReadError):
            return b""


@asynccontextmanager
async def wires(server: Running, count: int = 1) -> AsyncIterator[list[Wire]]:
    made: list[Wire] = []
    try:
        for _ in range(count):
            made.append(
                Wire(*await asyncio.open_connection("127.0.0.1", server.port, ssl=server.tls()))
            )
        yield made
    finally:
        for wire in made:
            wire.writer.transport.abort()


async def _readers_rights(server: Running) -> None:
    """Lets `reader`, who is no administrator, read all there is."""
    meta = {"name": "read-everything"}
    rules = [{"verbs": ["get", "list", "watch"], "apiGroups": ["*"], "resources": ["*"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta,
            "rules": rules}  # fmt: skip
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **meta}
    binding = {**role, "kind": "ClusterRoleBinding", "roleRef": ref,
               "subjects": [{"apiGroup": ref["apiGroup"], "kind": "Group", "name": "readers"}],
    }  # fmt: skip
    del binding["rules"]
    assert (await server.ask("POST", f"{rbac}/clusterroles", role)).status == 201
    assert (await server.ask("POST", f"{rbac}/clusterrolebindings", binding)).status == 201


async def _fill(server: Running, count: int, size: int) -> None:
    for number in range(count):
        body = {"metadata": {"name": f"m{number}"}, "data": {"x": "y" * size}}
        assert (await server.ask("POST", MAPS, body)).status == 201


async def test_unfinished_bodies_block_no_other_user_and_are_limited_per_user(
    tmp_path: Path,
) -> None:
    bodies = BodyLimits(reading_per_user=20)
    async with (
        serving(tmp_path, static_tokens=USERS, bodies=bodies, seats=2) as server,
        wires(server, 25) as slow,
    ):
        text = json.dumps(REVIEW).encode()
        head = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text)
        for wire in slow:
            wire.send(f"POST {REVIEWS}", head + text[:1])
        answers = [asyncio.create_task(wire.answer()) for wire in slow]
        async with asyncio.timeout(WAITS_S):
            while sum(task.done() for task in answers) < 5:
                await asyncio.wait([task for task in answers if not task.done()],
                                   return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        for token in (ALICE, BOB, MASTER):
            answer = await server.ask("POST", REVIEWS, REVIEW, token=token)
            assert answer.status == 201, answer.text
        for wire, answered in zip(slow, answers, strict=True):
            if not answered.done():
                wire.writer.write(text[1:])
        result = [await task for task in answers]
        assert sorted(status for status, _, _ in result) == [201] * 20 + [429] * 5
        retries = [headers["retry-after"] for status, headers, _ in result if status == 429]
        assert retries == ["1"] * 5


async def test_a_body_that_does_not_end_in_time_is_a_504(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, bodies=BodyLimits(within_s=0.2)) as server,
        wires(server) as (wire,),
    ):
        wire.send(f"POST {REVIEWS}", b"Content-Length: 100\r\n\r\n{")
        status, _, body = await wire.answer()
        assert status == 504
        assert json.loads(body)["reason"] == "Timeout"
        assert await wire.ended() == b""


async def test_the_bytes_of_unfinished_bodies_are_bounded_for_each_user(tmp_path: Path) -> None:
    bodies = BodyLimits(total_bytes=500_000, per_user_bytes=300_000)
    async with (
        serving(tmp_path, static_tokens=USERS, bodies=bodies) as server,
        wires(server, 5) as slow,
    ):
        for wire in slow[:4]:
            wire.send(f"POST {REVIEWS}", b"Content-Length: 100001\r\n\r\n" + b" " * 100_000)
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(wire.status()) for wire in slow[:4]],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert {task.result() for task in done} == {429}
        # Another user's body has room, and the administrator's is not even counted.
        big = {**REVIEW, "metadata": {"annotations": {"x": "y" * 150_000}}}
        for token in (BOB, MASTER):
            assert (await server.ask("POST", REVIEWS, big, token=token)).status == 201


@pytest.mark.parametrize(
    ("framing", "status"),
    [
        (b"Content-Length: 4000000\r\n\r\n", 413),
        (b"Transfer-Encoding: chunked\r\n\r\n" + 4 * (b"fffff\r\n%b\r\n" % (b" " * 0xFFFFF)), 413),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", 504),
    ],
)  # fmt: skip
async def test_invalid_bodies_are_rejected(tmp_path: Path, framing: bytes, status: int) -> None:
    bodies = BodyLimits(within_s=2.0)
    async with serving(tmp_path, bodies=bodies) as server, wires(server) as (wire,):
        wire.send(f"POST {REVIEWS}", framing)
        assert await wire.status() == status


async def test_streams_hold_no_seat(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, static_tokens=USERS, seats=1) as server,
        wires(server, 4) as streams,
    ):
        await _readers_rights(server)
        for wire in streams:
            wire.send(f"GET {MAPS}?watch=1", b"\r\n", READER.token)
            assert await wire.status() == 200
        assert (await server.ask("GET", MAPS, token=READER.token)).status == 200


async def test_server_stops_reading_from_a_client_that_pipelines_and_does_not_read(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as server, wires(server) as (wire,):
        await _fill(server, 1, 50_000)
        request = f"GET {MAPS}/m0 HTTP/1.1\r\nAuthorization: Bearer {MASTER}\r\n\r\n".encode()
        sent = await _until_stuck(wire, request * 50, limit_bytes=20_000_000)
        # What the two kernels hold, and not the 10 GB that were asked for.
        assert sent < 20_000_000
        assert (await server.ask("GET", "/readyz")).status == 200


async def _until_stuck(wire: Wire, piece: bytes, limit_bytes: int) -> int:
    """Write until the peer takes no more for a second, or takes far too much."""
    transport = wire.writer.transport
    transport.pause_reading()  # type: ignore[attr-defined]
    transport.set_write_buffer_limits(high=0)
    sent = 0
    while sent < limit_bytes:
        wire.writer.write(piece)
        try:
            await asyncio.wait_for(wire.writer.drain(), 1.0)
        except TimeoutError:
            break
        sent += len(piece)
    return sent


async def test_client_that_does_not_read_an_answer_is_disconnected(tmp_path: Path) -> None:
    limits = ReplyLimits(patience_s=0.2, slowest_bytes_s=1e9)
    async with serving(tmp_path, reply_limits=limits) as server, wires(server, 2) as (large, small):
        await _fill(server, 24, 900_000)
        large.writer.transport.pause_reading()  # type: ignore[attr-defined]
        large.send(f"GET {MAPS}", b"\r\n", MASTER)
        small.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(400):
            small.send(f"GET {MAPS}/m0?x=1", b"\r\n", MASTER)
        for wire in (large, small):
            async with asyncio.timeout(WAITS_S):
                while await _is_open(server, wire):
                    await server.ask("GET", "/readyz")


async def _is_open(server: Running, wire: Wire) -> bool:
    """Whether the server still has the connection, seen from its end."""
    own = wire.writer.get_extra_info("sockname")[1]
    return own in set(_peers_of(server.port))


def _peers_of(port: int) -> Iterator[int]:
    """The peers' ports of the established connections of a local port. Source: proc(5)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if int(local.split(":")[1], 16) == port and state == "01":
            yield int(remote.split(":")[1], 16)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_large_list_arrives_whole_at_a_slow_reader(tmp_path: Path, encoding: str) -> None:
    async with serving(tmp_path) as server:
        await _fill(server, 6, 900_000)
        connector = aiohttp.TCPConnector(ssl=server.tls())
        async with (
            aiohttp.ClientSession(connector=connector, read_bufsize=1024) as http,
            http.get(
                server.url + MAPS,
                headers={"Authorization": f"Bearer {MASTER}", "Accept-Encoding": encoding},
            ) as answer,
        ):
            pieces = []
            async for piece in answer.content.iter_chunked(4096):
                pieces.append(piece)
                await asyncio.sleep(0)
        document = json.loads(b"".join(pieces))
        assert [len(config_map["data"]["x"]) for config_map in document["items"]] == [900_000] * 6


async def test_unread_large_answers_are_bounded_per_user(tmp_path: Path) -> None:
    limits = ReplyLimits(waiting_bytes_per_user=1000)
    async with (
        serving(tmp_path, static_tokens=USERS, reply_limits=limits) as server,
        wires(server) as (wire,),
    ):
        await _readers_rights(server)
        await _fill(server, 16, 900_000)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        wire.send(f"GET {MAPS}", b"\r\n", READER.token)
        while (answer := await server.ask("GET", MAPS, token=READER.token)).status == 200:
            pass
        assert answer.status == 429
        assert (await server.ask("GET", f"{MAPS}/m0?limit=1", token=MASTER)).status == 200
        wire.writer.transport.abort()
        while (await server.ask("GET", MAPS, token=READER.token)).status != 200:
            pass


async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, wires(server) as (wire,):
        await _fill(server, 3, 10)
        order = [number % 3 for number in range(60)]
        for number in order:
            wire.send(f"GET {MAPS}/m{number}", b"\r\n", MASTER)
        names = [json.loads((await wire.answer())[2])["metadata"]["name"] for _ in order]
        assert names == [f"m{number}" for number in order]


async def test_a_head_that_drips_and_a_handshake_that_does_not_end_are_cut_off(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, limits=Limits(head_s=1)) as server, wires(server, 2) as made:
        silent, dripping = made
        raw_reader, raw_writer = await asyncio.open_connection("127.0.0.1", server.port)
        raw_writer.write(b"\x16\x03\x01\x02")

        async def drip() -> None:
            while True:
                dripping.writer.write(b"X")
                await asyncio.sleep(0.05)

        dripping.writer.write(b"GET / HTTP/1.1\r\n")
        task = asyncio.create_task(drip())
        try:
            for wire in (silent, dripping, Wire(raw_reader, raw_writer)):
                assert await wire.ended() == b""
        finally:
            task.cancel()
            raw_writer.transport.abort()
        assert (await server.ask("GET", "/readyz")).status == 200


async def test_connections_without_credentials_make_room(tmp_path: Path) -> None:
    limits = Limits(connections=8, reserved=2, head_s=1000)
    async with serving(tmp_path, limits=limits) as server:
        with _raw(server, 30):
            for _ in range(20):
                assert (await server.ask("GET", "/readyz")).status == 200


async def test_authenticated_connections_keep_their_places(tmp_path: Path) -> None:
    limits = Limits(connections=4, reserved=2, head_s=1000)
    async with serving(tmp_path, limits=limits) as server, wires(server, 4) as made:
        for wire in made:
            wire.send("GET /readyz", b"\r\n", MASTER)
            assert (await wire.answer())[0] == 200
        with pytest.raises((aiohttp.ClientError, OSError)):
            await server.ask("GET", "/readyz")
        for wire in made:
            wire.send("GET /readyz", b"\r\n", MASTER)
            assert (await wire.answer())[0] == 200
        made[0].writer.transport.abort()
        async with asyncio.timeout(WAITS_S):
            while not await _is_let_in(server):
                pass


async def _is_let_in(server: Running) -> bool:
    try:
        return (await server.ask("GET", "/readyz")).status == 200
    except (aiohttp.ClientError, OSError):
        return False


@contextmanager
def _raw(server: Running, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(count)
        ]


async def test_one_users_connections_leave_room_for_the_administrator(tmp_path: Path) -> None:
    limits = Limits(connections=6, reserved=2, per_user=3, head_s=1000)
    async with serving(tmp_path, limits=limits) as server, wires(server, 5) as made:
        statuses = []
        for wire in made:
            wire.send("GET /version", b"\r\n")
            statuses.append((await wire.answer())[0])
        assert statuses == [200] * 3 + [429] * 2
        for _ in range(20):
            assert await _is_let_in(server)
        assert (await server.ask("GET", "/version", token="agent-token")).status == 200


async def test_a_wrong_token_proves_nothing(tmp_path: Path) -> None:
    limits = Limits(connections=2, reserved=1, head_s=1000)
    async with serving(tmp_path, limits=limits) as server, wires(server, 2) as made:
        for wire in made:
            wire.send("GET /readyz", b"\r\n", "wrong")
            assert (await wire.answer())[0] == 401
        assert (await server.ask("GET", "/readyz")).status == 200
        assert await made[0].ended() == b""
