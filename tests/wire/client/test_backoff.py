"""Pauses that grow, have a limit, and differ from client to client."""

from __future__ import annotations

import pytest

from moorage.wire.client.backoff import Backoff


def test_pauses_double_up_to_the_limit() -> None:
    backoff = Backoff(first_s=1, limit_s=10)
    for expected in (1, 2, 4, 8, 10, 10, 10):
        assert expected <= backoff.next_s() <= expected * 1.2


def test_reset_restarts_the_delays() -> None:
    backoff = Backoff(first_s=1, limit_s=10)
    for _ in range(5):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 1.2


def test_years_of_failures_do_no_harm() -> None:
    backoff = Backoff(first_s=0.05, limit_s=60)
    pauses = [backoff.next_s() for _ in range(5000)]
    assert max(pauses) <= 72


def test_two_clients_do_not_return_together() -> None:
    pauses = {Backoff(first_s=1, limit_s=10).next_s() for _ in range(20)}
    assert len(pauses) > 1
    assert min(pauses) >= 1


@pytest.mark.parametrize("first_s", [0.001, 5])
def test_the_first_pause_is_the_first(first_s: float) -> None:
    assert first_s <= Backoff(first_s, 10).next_s() <= first_s * 1.2
