"""Seats: how they are divided, kept, lent and given back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.api.flow_control import QueuingConfiguration
from moorage.apiserver.flow_control.configuration import LevelConfiguration
from moorage.apiserver.flow_control.seats import Level, SeatLimits, SeatPool, divide
from tests.apiserver.flow_control.requests import defaults
from tests.apiserver.flow_control.waiting import Waiter

QUEUING = QueuingConfiguration(queues=4, hand_size=1, queue_length_limit=5)


def _level(name: str, shares: int, lendable: int = 0, **more: Any) -> LevelConfiguration:
    fields = {"queuing": QUEUING, **more}
    return LevelConfiguration(name=name, shares=shares, lendable_percent=lendable, **fields)


def _pool(total: int, *levels: LevelConfiguration) -> tuple[SeatPool, list[Level]]:
    pool = SeatPool()
    pool.configure({level.name: level for level in levels}, total)
    return pool, [pool.levels[level.name] for level in levels]


def _waiting(pool: SeatPool, level: Level, count: int = 1) -> list[Waiter]:
    waiters = [Waiter() for _ in range(count)]
    assert all(pool.enqueue(level, waiter, [0], 100) for waiter in waiters)
    return waiters


def test_the_default_levels_have_the_seats_of_kubernetes() -> None:
    assert divide(600, defaults().levels.values()) == {
        "exempt": SeatLimits(0, 0, 600),
        "catch-all": SeatLimits(13, 13, 613),
        "system": SeatLimits(74, 50, 674),
        "node-high": SeatLimits(98, 73, 698),
        "leader-election": SeatLimits(25, 25, 625),
        "workload-high": SeatLimits(98, 49, 698),
        "workload-low": SeatLimits(245, 24, 845),
        "global-default": SeatLimits(49, 24, 649),
    }


@pytest.mark.parametrize(
    ("lendable", "borrowing", "expected"),
    [
        (0, None, SeatLimits(10, 10, 20)),
        (25, 25, SeatLimits(10, 7, 13)),
        (100, 0, SeatLimits(10, 0, 10)),
        (0, 400, SeatLimits(10, 10, 50)),
    ],
)
def test_lower_and_upper_limits(lendable: int, borrowing: int | None, expected: SeatLimits) -> None:
    level = _level("a", 3, lendable, borrowing_percent=borrowing)
    assert divide(10, [level]) == {"a": expected}


def test_a_level_without_shares_has_only_what_it_borrows() -> None:
    none, isolated = _level("a", 0), _level("b", 0, borrowing_percent=0)
    assert divide(10, [none, isolated]) == {
        "a": SeatLimits(0, 0, 10),
        "b": SeatLimits(0, 0, 0),
    }


def test_a_level_has_its_own_seats_whatever_others_use() -> None:
    pool, (own, other) = _pool(10, _level("own", 1), _level("other", 1))
    assert [pool.take(other) for _ in range(6)] == [True] * 5 + [False]
    assert [pool.take(own) for _ in range(6)] == [True] * 5 + [False]


def test_idle_seats_are_lent_up_to_what_their_level_keeps() -> None:
    pool, (lender, borrower) = _pool(10, _level("lender", 1, 60), _level("borrower", 1))
    assert [pool.take(borrower) for _ in range(9)] == [True] * 8 + [False]
    assert [pool.take(lender) for _ in range(3)] == [True, True, False]


def test_a_level_gets_lent_seats_back_before_those_that_borrow() -> None:
    pool, (lender, borrower) = _pool(10, _level("lender", 1, 100), _level("borrower", 1))
    assert all(pool.take(borrower) for _ in range(10))
    more, own = _waiting(pool, borrower, 2), _waiting(pool, lender, 5)
    for _ in range(5):
        pool.give_back(borrower)
    assert all(waiter.is_granted for waiter in own)
    assert not any(waiter.is_granted for waiter in more)
    pool.give_back(lender)
    assert [waiter.is_granted for waiter in more] == [True, False]


def test_borrowing_has_a_limit() -> None:
    lender, borrower = _level("a", 1, 100), _level("b", 1, borrowing_percent=20)
    pool, (_, level) = _pool(10, lender, borrower)
    assert [pool.take(level) for _ in range(7)] == [True] * 6 + [False]


def test_the_exempt_level_always_has_a_seat_and_uses_up_what_is_lent() -> None:
    pool, (exempt, level) = _pool(
        4, _level("exempt", 0, is_exempt=True), _level("a", 1, 50, queuing=None)
    )
    assert all(pool.take(exempt) for _ in range(100))
    assert [pool.take(level) for _ in range(3)] == [True, True, False]
    for _ in range(100):
        pool.give_back(exempt)
    assert [pool.take(level) for _ in range(3)] == [True, True, False]


def test_a_request_does_not_overtake_those_that_wait() -> None:
    pool, (level,) = _pool(1, _level("a", 1))
    assert pool.take(level)
    (waiter,) = _waiting(pool, level)
    pool.give_back(level)
    assert waiter.is_granted
    assert not pool.take(level)


def test_a_request_whose_user_has_too_many_lets_others_go_first() -> None:
    pool, (level,) = _pool(2, _level("a", 1))
    assert pool.take(level)
    assert pool.take(level)
    held, other = Waiter(), Waiter()
    held.may_start = False
    assert pool.enqueue(level, held, [0], 5)
    assert pool.enqueue(level, other, [1], 5)
    pool.give_back(level)
    assert (held.is_granted, other.is_granted) == (False, True)
    pool.give_back(level)
    assert not held.is_granted
    assert pool.take(level), "a free seat is not kept for it"
    held.may_start = True
    pool.give_back(level)
    assert held.is_granted


def test_a_request_that_has_left_gets_no_seat() -> None:
    pool, (level,) = _pool(1, _level("a", 1))
    assert pool.take(level)
    gone, next_one = _waiting(pool, level, 2)
    gone.is_over = True
    pool.give_back(level)
    assert next_one.is_granted
    assert level.in_use == 1
    assert not gone.is_granted


def test_more_seats_are_given_out_at_once() -> None:
    pool, (level,) = _pool(1, _level("a", 1))
    assert pool.take(level)
    waiters = _waiting(pool, level, 3)
    pool.configure({"a": _level("a", 1)}, 3)
    assert [waiter.is_granted for waiter in waiters] == [True, True, False]


def test_a_level_that_is_gone_stays_until_its_requests_ended() -> None:
    pool, (gone, kept) = _pool(4, _level("gone", 1), _level("kept", 1))
    assert pool.take(gone)
    assert pool.take(gone)
    (waiter,) = _waiting(pool, gone)
    pool.configure({"kept": _level("kept", 1)}, 4)
    assert gone.is_leaving
    assert not waiter.is_granted
    pool.give_back(gone)
    assert waiter.is_granted
    assert [pool.take(kept) for _ in range(3)] == [True, True, False]
    for _ in range(2):
        pool.give_back(gone)
    pool.configure({"kept": _level("kept", 1)}, 4)
    assert list(pool.levels) == ["kept"]
    assert [pool.take(kept) for _ in range(3)] == [True, True, False]


class Pool(RuleBasedStateMachine):
    """Requests of three levels come, wait, leave and go, and the configuration changes."""

    names = ("a", "b", "c")

    def __init__(self) -> None:
        super().__init__()
        self.pool = SeatPool()
        self.waiters: list[tuple[Level, Waiter]] = []
        self.seated: list[Level] = []
        self.configure([1, 1, 1], [0, 50, 100], 6)

    @rule(
        shares=st.lists(st.integers(0, 4), min_size=3, max_size=3),
        lendable=st.lists(st.integers(0, 100), min_size=3, max_size=3),
        total=st.integers(1, 12),
    )
    def configure(self, shares: list[int], lendable: list[int], total: int) -> None:
        levels = {
            name: _level(name, share, lent)
            for name, share, lent in zip(self.names, shares, lendable, strict=True)
        }
        self.pool.configure(levels, total)

    @rule(name=st.sampled_from(names))
    def come(self, name: str) -> None:
        level = self.pool.levels[name]
        if self.pool.take(level):
            self.seated.append(level)
        else:
            waiter = Waiter()
            if self.pool.enqueue(level, waiter, [0, 1], 5):
                self.waiters.append((level, waiter))

    @precondition(lambda self: self.seated)
    @rule(index=st.integers(0, 100))
    def go(self, index: int) -> None:
        self.pool.give_back(self.seated.pop(index % len(self.seated)))

    @precondition(lambda self: self.waiters)
    @rule(index=st.integers(0, 100))
    def leave(self, index: int) -> None:
        level, waiter = self.waiters.pop(index % len(self.waiters))
        level.queues.discard(waiter)

    @invariant()
    def seats_are_as_the_limits_say(self) -> None:
        granted = [(level, waiter) for level, waiter in self.waiters if waiter.is_granted]
        self.waiters = [one for one in self.waiters if one not in granted]
        self.seated += [level for level, _ in granted]
        levels = self.pool.levels.values()
        for level in levels:
            assert level.in_use == self.seated.count(level)
            assert level.queues.waiting == sum(1 for one, _ in self.waiters if one is level)
            if level.queues.waiting:
                assert level.in_use >= level.lower
        assert self.pool._occupied == sum(max(one.in_use, one.lower) for one in levels)
        if any(one.queues.waiting and one.in_use < one.upper for one in levels):
            assert self.pool._occupied >= self.pool._total


TestPool = settings(max_examples=60, stateful_step_count=40)(Pool).TestCase


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100)), min_size=1, max_size=8))
def test_what_levels_keep_is_never_more_than_there_is(levels: list[tuple[int, int]]) -> None:
    limits = divide(
        600, [_level(str(number), *level) for number, level in enumerate(levels)]
    ).values()
    assert all(0 <= one.lower <= one.nominal <= one.upper for one in limits)
    assert 600 <= sum(one.nominal for one in limits) < 600 + len(levels) or not any(
        shares for shares, _ in levels
    )
