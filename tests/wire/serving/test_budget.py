"""Budgets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.wire.serving import Budget


def test_user_is_limited_to_the_per_user_share() -> None:
    budget = Budget(total=100, per_user=40)
    assert budget.take("a", 30)
    assert not budget.take("a", 11)
    assert budget.take("a", 10)
    assert budget.take("b", 40)
    assert not budget.take("c", 30)
    budget.give_back("a", 40)
    assert budget.take("c", 30)
    assert budget.held == 70


def test_user_who_holds_nothing_may_exceed_the_share() -> None:
    budget = Budget(total=100, per_user=40)
    assert budget.take("a", 90)
    assert not budget.take("a", 1)
    budget.give_back("a", 90)
    assert budget.take("b", 1000)
    assert not budget.take("c", 1)


def test_the_exempt_are_neither_limited_nor_counted() -> None:
    budget = Budget(total=2, per_user=1)
    assert all(budget.take("") for _ in range(5))
    assert budget.held == 0
    assert budget.take("a")
    assert budget.take("b")
    assert budget.take("")
    budget.give_back("")
    assert not budget.take("c")


def test_nothing_needs_no_room() -> None:
    budget = Budget(total=1, per_user=1)
    assert budget.take("a")
    assert budget.take("a", 0)
    budget.give_back("a")
    budget.give_back("a", 0)
    assert budget.take("a")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50))))
def test_what_was_taken_can_be_given_back_to_the_last_byte(takes: list[tuple[str, int]]) -> None:
    budget = Budget(total=200, per_user=80)
    held = [request for request in takes if budget.take(*request)]
    assert budget.held == sum(size for _, size in held)
    assert budget.held <= 200
    for lease in held:
        budget.give_back(*lease)
    assert budget.held == 0
    assert all(budget.take(user, 60) for user in "abc")


def test_whether_there_is_room_is_known_before() -> None:
    budget = Budget(total=10, per_user=4)
    assert budget.has_room("a", 20)
    assert budget.take("a", 3)
    assert budget.has_room("a")
    assert not budget.has_room("a", 2)
    assert budget.has_room("b", 7)
    assert not budget.has_room("b", 8)
    assert budget.has_room("", 100)
    assert budget.has_room("a", 0)
    assert budget.held == 3
