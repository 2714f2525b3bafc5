from __future__ import annotations

from moorage.api.errors import ForbiddenError
from moorage.controllers.expectations import Expectations
from moorage.controllers.requests import slow_start


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self):  # type: ignore[no-untyped-def]
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


async def test_batches_double_while_all_goes_well() -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1

    assert await slow_start(10, call) == (10, None)
    assert calls == 10


async def test_the_first_failing_batch_is_the_last() -> None:
    calls = 0

    async def call() -> None:
        nonlocal calls
        calls += 1
        if calls >= 2:
            raise ForbiddenError("exceeded quota")

    called, failure = await slow_start(100, call)
    assert (called, calls) == (3, 3)
    assert str(failure) == "exceeded quota"


def test_creations_are_awaited_until_all_have_been_seen() -> None:
    expectations = Expectations(FakeClock())
    assert expectations.are_met("k")
    expectations.expect_creations("k", 2)
    expectations.creation_seen("k")
    assert not expectations.are_met("k")
    expectations.creation_seen("k")
    assert expectations.are_met("k")


def test_deletion_counts_once_however_often_it_is_observed() -> None:
    expectations = Expectations(FakeClock())
    expectations.expect_deletions("k", {"a", "b"})
    expectations.deletion_seen("k", "a")
    expectations.deletion_seen("k", "a")
    assert not expectations.are_met("k")
    expectations.deletion_seen("k", "b")
    assert expectations.are_met("k")


def test_what_never_comes_is_given_up_after_five_minutes() -> None:
    clock = FakeClock()
    expectations = Expectations(clock)
    expectations.expect_creations("k", 1)
    assert expectations.seconds_left("k") == 300
    clock.seconds = 300
    assert expectations.are_met("k")
