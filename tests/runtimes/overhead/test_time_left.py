"""Time left of a measurement, at the pace so far."""

from __future__ import annotations

import pytest

from moorage.runtimes.overhead.measurement import time_left


@pytest.mark.parametrize(
    ("elapsed_s", "done", "total", "phrase"),
    [
        (10.0, 1, 12, "; about 1m50s left"),
        (110.2, 11, 12, "; about 11s left"),
        (120.0, 12, 12, ""),
        (0.0, 1, 2, "; about 0s left"),
    ],
)
def test_the_time_left_follows_the_pace(
    elapsed_s: float, done: int, total: int, phrase: str
) -> None:
    assert time_left(elapsed_s, done, total) == phrase
