"""Forwarding: queries for names outside the cluster go to the name servers of the node.

Each query has a socket of its own, so that its source port cannot be guessed, and an ID of its own;
a reply counts if it comes from the server asked, has that ID and repeats the question. Servers are
asked in their order; one that failed comes after the others for a while.
Source: RFC 5452 (resilience against forged answers).
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Final

from moorage.network.dns.messages import HEADER_BYTES, MAX_BYTES
from moorage.network.dns.zone import Name

PORT: Final = 53
_TRY_S: Final = 2.0
_ROUNDS: Final = 2
_MAX_PENDING: Final = 1000
_AVOIDED_S: Final = 10.0
_POINTER: Final = 0xC0


class NoUpstreamError(Exception):
    """No name server gave an answer; the text says why."""


class Forwarder:
    """Asks name servers outside. `stubs` are servers for a domain, by its labels."""

    def __init__(
        self, servers: Sequence[str], stubs: Mapping[Name, Sequence[str]] | None = None
    ) -> None:
        self._servers = tuple(servers)
        self._stubs = dict(stubs or {})
        self._pending = asyncio.Semaphore(_MAX_PENDING)
        self._avoided_until: dict[str, float] = {}

    def use(self, servers: Sequence[str]) -> None:
        """Ask these servers from now on."""
        self._servers = tuple(servers)
        self._avoided_until.clear()

    async def ask(self, query: bytes, name: Name, *, by_tcp: bool = False) -> bytes:
        """Return the reply of the first server that gives one, under the query's ID.

        Raises NoUpstreamError.
        """
        servers = self._servers_of(name)
        if not servers:
            raise NoUpstreamError("the node has no name server outside")
        if self._pending.locked():
            raise NoUpstreamError(f"{_MAX_PENDING} queries wait for answers")
        problem: object = ""
        async with self._pending:
            for server in self._in_order(servers) * _ROUNDS:
                try:
                    async with asyncio.timeout(_TRY_S):
                        answer = await (_ask_tcp if by_tcp else _ask_udp)(server, query)
                except (OSError, TimeoutError) as error:
                    problem = f"{server}: {error or 'no answer'}"
                    self._avoided_until[server] = _now_s() + _AVOIDED_S
                else:
                    self._avoided_until.pop(server, None)
                    return query[:2] + answer[2:]
        raise NoUpstreamError(str(problem))

    def _in_order(self, servers: tuple[str, ...]) -> tuple[str, ...]:
        now_s = _now_s()
        return tuple(sorted(servers, key=lambda one: self._avoided_until.get(one, 0.0) > now_s))

    def _servers_of(self, name: Name) -> tuple[str, ...]:
        for at in range(len(name)):
            if name[at:] in self._stubs:
                return tuple(self._stubs[name[at:]])
        return self._servers


def _now_s() -> float:
    return asyncio.get_running_loop().time()


async def _ask_udp(server: str, query: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    address, family = _place(server)
    with socket.socket(family, socket.SOCK_DGRAM) as connection:
        connection.setblocking(False)
        # Connected, so that the kernel discards datagrams from elsewhere.
        connection.connect(address)
        sent = _with_new_id(query)
        await loop.sock_sendall(connection, sent)
        while True:
            answer = await loop.sock_recv(connection, MAX_BYTES)
            if is_reply_to(answer, sent):
                return answer


async def _ask_tcp(server: str, query: bytes) -> bytes:
    address, _ = _place(server)
    reader, writer = await asyncio.open_connection(*address[:2])
    try:
        sent = _with_new_id(query)
        writer.write(struct.pack("!H", len(sent)) + sent)
        await writer.drain()
        (size,) = struct.unpack("!H", await _exactly(reader, 2))
        answer = await _exactly(reader, size)
    finally:
        writer.close()
    if not is_reply_to(answer, sent):
        raise OSError("the reply is to another query")
    return answer


async def _exactly(reader: asyncio.StreamReader, size: int) -> bytes:
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise OSError("the connection was closed") from error


def _with_new_id(query: bytes) -> bytes:
    return secrets.token_bytes(2) + query[2:]


def is_reply_to(answer: bytes, query: bytes) -> bool:
    """Say whether bytes are a reply with the ID and the question of a query."""
    end = _question_end(query)
    if end is None or len(answer) < end or not answer[2] & 0x80:
        return False
    has_one = answer[4:6] == query[4:6]
    question = answer[HEADER_BYTES:end].lower() == query[HEADER_BYTES:end].lower()
    return answer[:2] == query[:2] and has_one and question


def _question_end(message: bytes) -> int | None:
    """Return where the first question ends, None for a message without one."""
    at = HEADER_BYTES
    while at < len(message) and message[at]:
        if message[at] & _POINTER:
            return None
        at += message[at] + 1
    return at + 5 if at + 5 <= len(message) else None


def lifetimes(message: bytes) -> list[int]:
    """Return the places of the records' TTLs in a message. Raises ValueError if it is malformed."""
    try:
        counts = struct.unpack_from("!4H", message, 4)
        at, places = HEADER_BYTES, []
        for _ in range(counts[0]):
            at = _skip_name(message, at) + 4
        for _ in range(sum(counts[1:])):
            at = _skip_name(message, at)
            kind, _, _, size = struct.unpack_from("!HHIH", message, at)
            # EDNS keeps its flags where other records have their TTL.
            if kind != _OPT:
                places.append(at + 4)
            at += 10 + size
    except (struct.error, IndexError) as error:
        raise ValueError("a malformed message") from error
    if at > len(message):
        raise ValueError("a malformed message")
    return places


_OPT: Final = 41


def _skip_name(message: bytes, at: int) -> int:
    while message[at]:
        if message[at] & _POINTER == _POINTER:
            return at + 2
        at += message[at] + 1
    return at + 1


def _place(server: str) -> tuple[tuple[str, int], socket.AddressFamily]:
    """Return the address of a server given as ADDRESS or ADDRESS#PORT."""
    host, _, port = server.partition("#")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return (host, int(port or PORT)), family
