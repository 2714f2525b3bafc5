"""Directories that agents keep: the reason is what they wrote last."""

from __future__ import annotations

import pytest

from moorage.cluster.attach.kept_directories import reason_of_log

_INFO = "2026-11-26T17:23:27.290Z info cluster.standalone.health health is served port=8081"
_STAYS = (
    "2026-11-26T17:44:08.001Z warning cluster.standalone.data_removal directories stay for now "
    'reason="the process on the socket is not taken for the host\'s engine"'
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        (
            f"{_INFO}\n{_STAYS}\n{_INFO}\n",
            'directories stay for now reason="the process on the socket is not taken for the '
            "host's engine\"",
        ),
        ("Traceback\n\nKeyError: 'a'\n", "KeyError: 'a'"),
        ("a warning b c\x1b[2J\n", "c\\x1b[2J"),
        ("x" * 10_000, "x" * 500),
    ],
)
def test_the_reason_is_the_last_warning_of_the_log(text: str, reason: str) -> None:
    assert reason_of_log(text) == reason
