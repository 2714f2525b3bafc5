"""Slots: who takes one, who needs none, who gets none."""

from __future__ import annotations

import pytest

from moorage.apiserver.routing import is_stream
from moorage.apiserver.slots import SlotLimits, Slots, share_of
from moorage.registry.request import User

LIMITS = SlotLimits(reading=3, mutating=2, reading_per_user=2, mutating_per_user=1)
A, B, C = "abc"


def test_each_user_has_a_share_and_all_have_the_whole() -> None:
    slots = Slots(LIMITS)
    assert [slots.lane("get").take(A), slots.lane("list").take(A), slots.lane("get").take(A)] == [
        True,
        True,
        False,
    ]
    assert slots.lane("list").take(B)
    assert not slots.lane("get").take(C)
    slots.lane("get").give_back(A)
    assert slots.lane("get").take(C)
    assert not slots.lane("get").take(A)


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete", "deletecollection"])
def test_changes_have_slots_of_their_own(verb: str) -> None:
    slots = Slots(LIMITS)
    assert slots.lane("get").take(A)
    assert slots.lane(verb).take(A)
    assert not slots.lane(verb).take(A)
    assert slots.lane(verb).take(B)
    assert not slots.lane(verb).take(C)
    slots.lane(verb).give_back(B)
    assert slots.lane(verb).take(C)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (User("x", groups=("system:masters",)), True),
        (User("system:node:n1", groups=("system:nodes", "system:authenticated")), True),
        (User("system:kube-controller-manager"), True),
        (User("system:kube-scheduler"), True),
        (User("system:serviceaccount:default:default", groups=("system:serviceaccounts",)), False),
        (User("system:anonymous", groups=("system:unauthenticated",)), False),
        (User("system:masters"), False),
    ],
)
def test_the_systems_own_are_exempt(user: User, expected: bool) -> None:
    assert share_of(user) == ("" if expected else user.name)


def test_the_exempt_need_no_slot() -> None:
    slots = Slots(LIMITS)
    assert all(slots.lane("get").take("") for _ in range(LIMITS.reading + 1))
    slots.lane("get").give_back("")
    assert slots.lane("get").take(A)


@pytest.mark.parametrize(
    ("verb", "subresource", "expected"),
    [
        ("watch", "", True),
        ("get", "log", True),
        ("get", "exec", True),
        ("create", "attach", True),
        ("create", "portforward", True),
        ("get", "", False),
        ("list", "", False),
        ("get", "status", False),
        ("create", "binding", False),
    ],
)
def test_streams(verb: str, subresource: str, expected: bool) -> None:
    assert is_stream(verb, subresource) is expected


def test_limits_unless_others_are_given() -> None:
    limits = SlotLimits()
    assert (limits.reading, limits.mutating) == (400, 200)
    assert (limits.reading_per_user, limits.mutating_per_user) == (100, 50)


def test_a_user_without_requests_is_forgotten() -> None:
    slots = Slots(LIMITS)
    for verb in ("get", "create"):
        assert slots.lane(verb).take(A)
        slots.lane(verb).give_back(A)
    for lane in (slots._reading, slots._mutating):
        assert lane.held == 0
        assert lane._by_user == {}


def test_what_is_given_back_is_one_slot() -> None:
    slots = Slots(LIMITS)
    assert slots.lane("get").take(A)
    assert slots.lane("watch").take(A)
    slots.lane("list").give_back(A)
    assert slots.lane("get").take(A)
    assert not slots.lane("get").take(A)
