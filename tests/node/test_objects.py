"""The cache of ConfigMaps and Secrets: how old a copy may be, who fetches, what a failure gives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.api.errors import ForbiddenError, NotFoundError, StatusError
from moorage.node.objects import ObjectCache, retry_forbidden
from moorage.wire.client.resources import CONFIG_MAPS, SECRETS
from moorage.wire.client.rest import UnreachableError
from tests.clocks import FakeClock, settle


class Api:
    """Answers in order; errors are raised. A future is waited for."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[tuple[Any, ...]] = []

    async def get(self, *asked: Any) -> Any:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cache(api: Any, clock: FakeClock) -> ObjectCache:
    return ObjectCache(api, clock)


async def read(cache: ObjectCache, name: str = "a", *, max_age_s: float = 10) -> Any:
    return await cache.get(CONFIG_MAPS, "shop", name, max_age_s=max_age_s)


async def test_a_copy_is_given_until_it_is_older_than_the_reader_accepts(
    cache: ObjectCache, api: Api, clock: FakeClock
) -> None:
    api.answers = ["one", NotFoundError.of("configmaps", "b"), "two"]
    assert await read(cache) == "one"
    assert api.asked == [(CONFIG_MAPS, "a", "shop")]
    # What does not exist is remembered too, and each by its whole name.
    assert await read(cache, "b") is None
    assert await read(cache, "b") is None
    clock.advance(10)
    assert await read(cache) == "one"
    clock.advance(0.1)
    assert await read(cache) == "two"
    assert len(api.asked) == 3
    api.answers = ["secret", "elsewhere"]
    secret: Any = await cache.get(SECRETS, "shop", "a", max_age_s=10)
    config_map: Any = await cache.get(CONFIG_MAPS, "other", "a", max_age_s=10)
    assert (secret, config_map) == ("secret", "elsewhere")


async def test_an_older_copy_is_better_than_none_while_the_server_is_away(
    cache: ObjectCache, api: Api
) -> None:
    api.answers = [UnreachableError("away"), "one", UnreachableError("away")]
    with pytest.raises(UnreachableError):
        await read(cache)
    assert await read(cache) == "one"
    assert await read(cache, max_age_s=-1) == "one"
    api.answers = [StatusError("broken")]
    with pytest.raises(StatusError):
        await read(cache, max_age_s=-1)


async def test_what_is_not_asked_for_is_forgotten(
    cache: ObjectCache, api: Api, clock: FakeClock
) -> None:
    api.answers = ["a", "b"]
    await read(cache, "a")
    await read(cache, "b")
    clock.advance(300)
    assert await read(cache, "a", max_age_s=1000) == "a"
    clock.advance(300)
    cache.forget_unused()
    api.answers = ["b2"]
    assert await read(cache, "a", max_age_s=1000) == "a"
    assert await read(cache, "b", max_age_s=1000) == "b2"
    clock.advance(599)
    cache.forget_unused()
    assert len(cache._entries) == 2
    clock.advance(1)
    cache.forget_unused()
    assert not cache._entries


async def test_readers_that_come_together_share_a_request(cache: ObjectCache, api: Api) -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    api.answers = [answer, "other"]
    readers = [asyncio.ensure_future(read(cache)) for _ in range(3)]
    other = asyncio.ensure_future(read(cache, "b"))
    await settle()
    assert len(api.asked) == 2
    answer.set_result("one")
    assert await asyncio.gather(*readers, other) == ["one"] * 3 + ["other"]
    assert not cache._fetches


async def test_readers_share_a_failure_and_the_next_asks_again(
    cache: ObjectCache, api: Api
) -> None:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    api.answers = [answer, "one"]
    readers = [asyncio.ensure_future(read(cache)) for _ in range(2)]
    await settle()
    answer.set_result(UnreachableError("away"))
    for outcome in await asyncio.gather(*readers, return_exceptions=True):
        assert isinstance(outcome, UnreachableError)
    assert await read(cache) == "one"


async def test_a_reader_that_gives_up_does_not_take_the_others_along(
    cache: ObjectCache, api: Api
) -> None:
    never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    api.answers = [never, "one"]
    first, second = (asyncio.ensure_future(read(cache)) for _ in range(2))
    await settle()
    first.cancel()
    assert await second == "one"
    assert len(api.asked) == 2
    assert not cache._fetches


async def test_what_is_forbidden_is_asked_for_again_for_three_seconds(clock: FakeClock) -> None:
    calls: list[float] = []

    async def call() -> str:
        calls.append(round(clock.monotonic(), 2))
        if len(calls) < 4:
            raise ForbiddenError.of("secrets", "a", "not yet")
        return "found"

    asking = asyncio.ensure_future(retry_forbidden(clock, call))
    await run(clock, asking)
    assert await asking == "found"
    assert calls == [0, 0.02, 0.06, 0.14]


async def test_what_stays_forbidden_is_an_error(clock: FakeClock) -> None:
    calls: list[float] = []

    async def call() -> str:
        calls.append(round(clock.monotonic(), 2))
        raise ForbiddenError.of("secrets", "a", "never")

    asking = asyncio.ensure_future(retry_forbidden(clock, call))
    await run(clock, asking)
    with pytest.raises(ForbiddenError):
        await asking
    assert calls == [0, 0.02, 0.06, 0.14, 0.3, 0.62, 1.26, 2.54]


async def run(clock: FakeClock, asking: asyncio.Future[Any]) -> None:
    await settle()
    while not asking.done():
        assert clock.next_s is not None
        clock.advance(clock.next_s)
        await settle()
