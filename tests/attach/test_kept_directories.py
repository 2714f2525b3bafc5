"""Directories that agents keep: the reason is what they wrote last."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from moorage.attach.detach_options import Leftover
from moorage.attach.foreign_objects import kept_directories, reason_of_log
from moorage.attach.manifests.identity import labels
from tests.attach.object_server import running as running_objects
from tests.wire.client.fake_api import answer, refusal, running

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


def _agent(name: str, node: str = "", ready: str = "False", **labelled: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "moorage", "labels": labels("runtime-agent") | labelled,
        },
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }  # fmt: skip


async def test_nodes_are_named_with_the_reason_in_their_order() -> None:
    other = {"app.kubernetes.io/component": "webhook"}
    async with running_objects() as (server, client):
        for pod in (
            _agent("x", "n2"), _agent("y", "n1"), _agent("ready", "n3", "True"), _agent("z"),
            _agent("other", "n4", **other), _agent("lost", "n5"),
        ):  # fmt: skip
            server.put(pod)
        server.logs |= {"x": "2026 warning a.b busy\n", "y": "last words\n"}
        path = "/api/v1/namespaces/moorage/pods/lost/log"
        server.failures["GET", path] = [refusal(404, "NotFound", "no such node")]
        left = await kept_directories(client, "moorage")
        assert {"tailLines": "20"} in server.queries
    why = "its agent did not remove it: "
    assert left == [
        Leftover("/var/lib/moorage-agent on node (none)", f"{why}it did not say why"),
        Leftover("/var/lib/moorage-agent on node n1", f"{why}last words"),
        Leftover("/var/lib/moorage-agent on node n2", f"{why}busy"),
        Leftover("/var/lib/moorage-agent on node n5", f"{why}its log cannot be read: no such node"),
    ]


@pytest.mark.parametrize(("count", "more"), [(10, 0), (12, 2)])
async def test_the_logs_of_ten_nodes_are_read(count: int, more: int) -> None:
    async with running_objects() as (server, client):
        for number in range(count):
            server.put(_agent(f"p{number}", f"n{number:02}"))
        left = await kept_directories(client, "moorage")
    rest = Leftover(f"/var/lib/moorage-agent on {more} nodes more", "the same may hold there")
    assert left[10:] == ([rest] if more else [])
    assert left[9].what == "/var/lib/moorage-agent on node n09"


async def test_without_a_pod_to_ask_some_nodes_keep_it() -> None:
    async with running_objects() as (server, client):
        server.put(_agent("ready", "n3", "True"))
        left = await kept_directories(client, "moorage")
    why = "their agents did not remove it"
    assert left == [Leftover("/var/lib/moorage-agent on some nodes", why)]
