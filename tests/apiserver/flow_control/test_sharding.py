"""Hands of queues: complete, without repetition, spread evenly."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from moorage.apiserver.flow_control.fair_queues import flow_hash, hand_of, is_dealable


@given(st.integers(0, 2**64 - 1), st.integers(1, 1000), st.integers(1, 20))
def test_a_hand_has_different_queues_of_the_level(number: int, queues: int, size: int) -> None:
    assume(is_dealable(queues, size))
    hand = hand_of(number, queues, size)
    assert len(set(hand)) == len(hand) == size
    assert hand == sorted(hand)
    assert 0 <= hand[0] <= hand[-1] < queues


def test_every_hand_is_dealt_equally_often() -> None:
    hands = Counter(tuple(hand_of(number, 5, 2)) for number in range(5 * 4 * 3))
    assert len(hands) == math.comb(5, 2)
    assert set(hands.values()) == {6}


def test_flows_have_hands_of_their_own() -> None:
    hands = {tuple(hand_of(flow_hash("s", f"user{number}"), 128, 6)) for number in range(1000)}
    assert len(hands) == 1000
    assert flow_hash("a", "b") != flow_hash("ab", "")
    assert flow_hash("a", "\udcff")


def test_which_hands_can_be_dealt() -> None:
    assert is_dealable(1, 1)
    assert is_dealable(128, 6)
    assert not is_dealable(0, 0)
    assert not is_dealable(4, 0)
    assert not is_dealable(4, 5)
    assert not is_dealable(-4, -5)
    assert not is_dealable(10_000_000, 20)
