"""Directories that agents keep: the reason is what they wrote last."""

from __future__ import annotations

import pytest
from aiohttp import web

from moorage.cluster.attach.kept_directories import kept_directories, reason_of_log
from tests.client.fake_api import answer, running

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


async def test_of_a_log_no_more_is_read_than_last_lines_have() -> None:
    async with running() as (api, client):
        pods = [{"metadata": {"name": name}, "spec": {"nodeName": name}} for name in "ab"]
        api.failures += [
            answer({"items": pods}),
            lambda: web.Response(text="short"),
            lambda: web.Response(body=b"x" * (2 * 1024 * 1024)),
        ]
        left = await kept_directories(client, "moorage")
    assert sorted(one.why for one in left) == [
        "its agent did not remove it: its log cannot be read: the answer has more than 1048576 "
        "bytes",
        "its agent did not remove it: short",
    ]
