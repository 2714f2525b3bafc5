"""Byte budgets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.serving import ByteBudget


def test_a_user_holds_no_more_than_his_share() -> None:
    budget = ByteBudget(total=100, per_user=40)
    assert budget.take("a", 30)
    assert not budget.take("a", 11)
    assert budget.take("a", 10)
    assert budget.take("b", 40)
    assert not budget.take("c", 30)
    budget.give_back("a", 40)
    assert budget.take("c", 30)
    assert budget.held == 70


def test_who_holds_nothing_may_take_more_than_his_share() -> None:
    budget = ByteBudget(total=100, per_user=40)
    assert budget.take("a", 90)
    assert not budget.take("a", 1)
    budget.give_back("a", 90)
    assert budget.take("b", 1000)
    assert not budget.take("c", 1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50))))
def test_what_was_taken_can_be_given_back_to_the_last_byte(takes: list[tuple[str, int]]) -> None:
    budget = ByteBudget(total=200, per_user=80)
    held = [each for each in takes if budget.take(*each)]
    assert budget.held == sum(size for _, size in held)
    assert budget.held <= 200
    for each in held:
        budget.give_back(*each)
    assert budget.held == 0
    assert all(budget.take(user, 60) for user in "abc")
