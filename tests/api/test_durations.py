from __future__ import annotations

import pytest

from moorage.api.durations import format_duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (1, "1s"),
        (1.5, "1.5s"),
        (59.999, "59.999s"),
        (60, "1m0s"),
        (160, "2m40s"),
        (300, "5m0s"),
        (3600, "1h0m0s"),
        (3661.5, "1h1m1.5s"),
    ],
)
def test_durations_as_go_prints_them(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
