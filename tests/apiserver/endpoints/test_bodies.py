"""Request bodies: read whole, in time, within what a user may have unfinished."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.web_protocol import RequestPayloadError

from moorage.api.errors import (
    BadRequestError,
    ServerTimeoutError,
    StatusError,
    TooLargeError,
    TooManyRequestsError,
)
from moorage.apiserver.endpoints.bodies import LIMIT_BYTES, Bodies, BodyLimits

_ALICE, _BOB = "alice", "bob"
_ADMIN = ""
_LIMITS = BodyLimits(within_s=5.0, total_bytes=100, per_user_bytes=60, reading_per_user=2)


class Content:
    """A body that is here already, or that the test feeds piece by piece."""

    def __init__(self, *pieces: bytes, is_here: bool = False) -> None:
        self._pieces: asyncio.Queue[bytes | Exception] = asyncio.Queue()
        self._is_here = is_here
        for piece in pieces:
            self.feed(piece)

    def feed(self, piece: bytes | Exception) -> None:
        self._pieces.put_nowait(piece)

    def is_eof(self) -> bool:
        return self._is_here

    def read_nowait(self, size: int) -> bytes:
        assert size == -1
        return self._given(self._pieces.get_nowait())

    async def readany(self) -> bytes:
        return self._given(await self._pieces.get())

    @staticmethod
    def _given(piece: bytes | Exception) -> bytes:
        if isinstance(piece, Exception):
            raise piece
        return piece


def _request(content: Content, length: int | None = None) -> Any:
    return SimpleNamespace(content=content, content_length=length)


def _here(body: bytes) -> Any:
    return _request(Content(body, is_here=True), len(body))


async def _read_all(bodies: Bodies, share: str, *pieces: bytes) -> bytes:
    return await bodies.read(_request(Content(*pieces, b"")), share)


def _held(bodies: Bodies) -> int:
    return bodies._budget.held


async def test_a_body_is_read_whether_it_is_here_or_still_comes() -> None:
    bodies = Bodies(_LIMITS)
    assert await bodies.read(_here(b"abc"), _ALICE) == b"abc"
    assert await _read_all(bodies, _ALICE, b"de", b"fg") == b"defg"
    assert _held(bodies) == 7
    bodies.release(_ALICE, 3)
    bodies.release(_ALICE, 4)
    assert _held(bodies) == 0
    assert bodies._reading.held == 0


async def test_an_empty_body_holds_nothing() -> None:
    bodies = Bodies(_LIMITS)
    assert await bodies.read(_here(b""), _ALICE) == b""
    assert await _read_all(bodies, _ALICE) == b""
    bodies.release(_ALICE, 0)
    assert _held(bodies) == 0


@pytest.mark.parametrize(("size", "is_taken"), [(LIMIT_BYTES, True), (LIMIT_BYTES + 1, False)])
async def test_a_body_has_three_mebibytes_at_most(size: int, is_taken: bool) -> None:
    bodies = Bodies(BodyLimits())
    declared = bodies.read(_request(Content(b"x", is_here=True), size), _ALICE)
    undeclared = _read_all(bodies, _ALICE, b"x" * (size - 1), b"x")
    for reading in (declared, undeclared):
        if is_taken:
            await reading
        else:
            with pytest.raises(TooLargeError):
                await reading
    assert _held(bodies) == (size + 1 if is_taken else 0)


async def test_users_have_a_share_and_the_systems_own_have_no_limit() -> None:
    bodies = Bodies(_LIMITS)
    await bodies.read(_here(b"x" * 40), _ALICE)
    for reading in (
        bodies.read(_here(b"x" * 21), _ALICE), _read_all(bodies, _ALICE, b"x" * 20, b"x"),
    ):  # fmt: skip
        with pytest.raises(TooManyRequestsError) as caught:
            await reading
        assert "bytes of request bodies of this user are unfinished" in caught.value.message
        assert caught.value.retry_after_seconds == 1
        assert _held(bodies) == 40
    await bodies.read(_here(b"x" * 20), _ALICE)
    await bodies.read(_here(b"x" * 1000), _ADMIN)
    await _read_all(bodies, _ADMIN, b"x" * 1000)
    assert _held(bodies) == 60
    bodies.release(_ADMIN, 1000)
    assert _held(bodies) == 60


async def test_so_many_bodies_of_a_user_are_read_at_a_time() -> None:
    bodies = Bodies(_LIMITS)
    contents = [Content() for _ in range(2)]
    reading = [asyncio.create_task(bodies.read(_request(content), _ALICE)) for content in contents]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequestsError, match="too many request bodies of this user"):
        await _read_all(bodies, _ALICE, b"x")
    # What has arrived already, others, and the system's own are not held up.
    assert await bodies.read(_here(b"x"), _ALICE) == b"x"
    assert await _read_all(bodies, _BOB, b"x") == b"x"
    admins = [Content() for _ in range(3)]
    reading += [asyncio.create_task(bodies.read(_request(admin), _ADMIN)) for admin in admins]
    await asyncio.sleep(0)
    assert bodies._reading.held == 2
    contents[0].feed(b"")
    await reading[0]
    assert bodies._reading.held == 1
    assert await _read_all(bodies, _ALICE, b"y") == b"y"
    for content in (contents[1], *admins):
        content.feed(b"")
    await asyncio.gather(*reading)
    assert bodies._reading.held == 0


@pytest.mark.parametrize("failure", ["time", "payload", "cancellation", "client"])
async def test_a_body_that_does_not_end_well_holds_nothing(failure: str) -> None:
    within_s = 0.01 if failure == "time" else 5.0
    bodies = Bodies(BodyLimits(within_s=within_s))
    content = Content(b"abc")
    reading = asyncio.create_task(bodies.read(_request(content), _ALICE))
    await asyncio.sleep(0)
    expected: type[BaseException] = StatusError
    if failure == "payload":
        content.feed(RequestPayloadError("bad chunk"))
        expected = BadRequestError
    elif failure == "client":
        content.feed(ConnectionResetError("gone"))
        expected = ConnectionResetError
    elif failure == "cancellation":
        reading.cancel()
        expected = asyncio.CancelledError
    else:
        expected = ServerTimeoutError
    with pytest.raises(expected) as caught:
        await reading
    if failure == "payload":
        assert str(caught.value) == "the request's body cannot be read: bad chunk"
    assert _held(bodies) == 0
    assert bodies._reading.held == 0


async def test_a_malformed_body_that_is_here() -> None:
    content = Content(is_here=True)
    content.feed(RequestPayloadError("bad chunk"))
    with pytest.raises(BadRequestError, match="bad chunk"):
        await Bodies(_LIMITS).read(_request(content), _ALICE)


def test_limits_unless_others_are_given() -> None:
    limits = BodyLimits()
    assert (limits.total_bytes, limits.per_user_bytes) == (128 * 2**20, 32 * 2**20)
    assert (limits.within_s, limits.reading_per_user) == (60.0, 128)
