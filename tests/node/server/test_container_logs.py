from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import web

from moorage.api.pods import PodStatus
from moorage.node.logs import LogOptions, LogReadError
from moorage.node.runtime.views import State
from moorage.node.server import container_logs
from moorage.node.server.container_logs import (
    ContainerLogs,
    NoLogError,
    QueryError,
    container_id,
    log_options,
)
from tests.node.objects import UID, a_pod, a_view, engine_has

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, LogOptions()),
        ({"follow": "true", "timestamps": "1"}, LogOptions(follow=True, timestamps=True)),
        ({"follow": "false", "timestamps": "0"}, LogOptions()),
        ({"tailLines": "5", "limitBytes": "9"}, LogOptions(tail_lines=5, limit_bytes=9)),
        ({"sinceSeconds": "60"}, LogOptions(since=datetime(2026, 1, 1, tzinfo=UTC))),
        (
            {"sinceTime": "2026-01-01T01:00:00+01:00"},
            LogOptions(since=datetime(2026, 1, 1, tzinfo=UTC)),
        ),
        ({"stream": "Stderr"}, LogOptions(streams=frozenset({"stderr"}))),
    ],
)
def test_queries(query: dict[str, str], wanted: LogOptions) -> None:
    assert log_options(query, NOW) == wanted


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"tailLines": "x"}, 400),
        ({"sinceTime": "yesterday"}, 400),
        ({"tailLines": "-1"}, 422),
        ({"limitBytes": "0"}, 422),
        ({"sinceSeconds": "0"}, 422),
        ({"sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"}, 422),
        ({"stream": "Odd"}, 422),
        ({"stream": "Stdout", "tailLines": "1"}, 422),
    ],
)
def test_queries_that_are_refused(query: dict[str, str], status: int) -> None:
    with pytest.raises(QueryError) as caught:
        log_options(query, NOW)
    assert caught.value.status == status


def chosen(status: dict[str, Any], *, is_previous: bool = False) -> str:
    obj = msgspec.convert({"containerStatuses": [{"name": "app", **status}]}, PodStatus)
    return container_id(obj, "web", "app", is_previous=is_previous)


ENDED = {"terminated": {"exitCode": 1, "containerID": "x://old"}}


@pytest.mark.parametrize(
    ("status", "is_previous", "wanted"),
    [
        ({"containerID": "x://now", "state": {"running": {}}}, False, "x://now"),
        ({"containerID": "x://old", "state": ENDED}, False, "x://old"),
        ({"state": {"waiting": {}}, "lastState": ENDED}, False, "x://old"),
        ({"containerID": "x://now", "state": {"running": {}}, "lastState": ENDED}, True, "x://old"),
    ],
    ids=["present", "ended", "waiting after an end", "previous"],
)
def test_whose_log(status: dict[str, Any], is_previous: bool, wanted: str) -> None:
    assert chosen(status, is_previous=is_previous) == wanted


@pytest.mark.parametrize(
    ("status", "is_previous", "complaint"),
    [
        (
            {"state": {"waiting": {"reason": "ContainerCreating"}}},
            False,
            'container "app" in pod "web" is waiting to start: ContainerCreating',
        ),
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
            False,
            'container "app" in pod "web" is waiting to start: trying and failing to pull image',
        ),
        (
            {"state": {"terminated": {"exitCode": 1}}},
            False,
            'container "app" in pod "web" is terminated',
        ),
        (
            {"state": {"running": {}}},
            True,
            'previous terminated container "app" in pod "web" not found',
        ),
    ],
)
def test_missing_log_is_explained(
    status: dict[str, Any], is_previous: bool, complaint: str
) -> None:
    with pytest.raises(NoLogError) as caught:
        chosen(status, is_previous=is_previous)
    assert str(caught.value) == complaint


def test_a_container_of_which_nothing_is_known() -> None:
    with pytest.raises(NoLogError, match='container "app" in pod "web" is not available'):
        container_id(PodStatus(), "web", "app", is_previous=False)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"tail": "all", "tailLines": "3"}, LogOptions()),
        ({"tail": "7", "tailLines": "3"}, LogOptions(tail_lines=7)),
        ({"tail": "", "tailLines": "0"}, LogOptions(tail_lines=0)),
        ({"limitBytes": "1", "sinceSeconds": "1"},
         LogOptions(limit_bytes=1, since=NOW - timedelta(seconds=1))),
        ({"stream": "Stdout"}, LogOptions(streams=frozenset({"stdout"}))),
        ({"stream": "All", "tailLines": "1"}, LogOptions(tail_lines=1)),
        ({"stream": "", "tailLines": "1"}, LogOptions(tail_lines=1)),
    ],
)  # fmt: skip
def test_more_queries(query: dict[str, str], wanted: LogOptions) -> None:
    assert log_options(query, NOW) == wanted


@pytest.mark.parametrize(
    ("query", "status"),
    [({"tail": "x"}, 400), ({"stream": "Stderr", "tail": "1"}, 422), ({"sinceTime": "x"}, 400)],
)
def test_more_queries_that_are_refused(query: dict[str, str], status: int) -> None:
    with pytest.raises(QueryError) as caught:
        log_options(query, NOW)
    assert caught.value.status == status


class Streamed:
    """The answer that a log is streamed into."""

    def __init__(self, **_: Any) -> None:
        self.status = 200
        self.written = b""
        self.steps: list[str] = []

    async def prepare(self, _request: object) -> None:
        self.steps.append("prepared")

    async def write(self, piece: bytes) -> None:
        self.written += piece

    async def write_eof(self) -> None:
        self.steps.append("ended")


def served(path: str, *, state: State = State.RUNNING) -> ContainerLogs:
    """Logs of a pod `web` whose container `app` has one at a path, or none."""
    container = engine_has("app", state, id_="c1", log_path=path)
    status = {"containerStatuses": [{"name": "app", "containerID": "x://c1",
                                     "state": {"running": {}}}]}  # fmt: skip
    worker = SimpleNamespace(pod=a_pod(), uid=UID, status=msgspec.convert(status, PodStatus))
    pod_manager: Any = SimpleNamespace(find=lambda _, name: worker if name == "web" else None)
    context: Any = SimpleNamespace(
        clock=SimpleNamespace(now=lambda: NOW),
        observer=SimpleNamespace(view=lambda _: a_view(container)),
    )
    return ContainerLogs(context, pod_manager)


def asked(pod: str = "web", container: str = "app", **query: str) -> Any:
    info = {"namespace": "shop", "pod": pod, "container": container}
    return SimpleNamespace(match_info=info, query=query)


async def pieces(*chunks: bytes | Exception) -> AsyncIterator[bytes]:
    for chunk in chunks:
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk


@pytest.mark.parametrize(
    ("request_", "path", "status", "message"),
    [
        (asked(tailLines="x"), "/l", 400, "Unable to decode query."),
        (asked(tailLines="-1"), "/l", 422, "Invalid request."),
        (asked(pod="other"), "/l", 404, 'pod "other" does not exist'),
        (asked(container="x"), "/l", 404, 'container "x" not found in pod "web"'),
        (asked(previous="true"), "/l", 400, "previous terminated container"),
        (asked(), "", 400, "unable to retrieve container logs for x://c1"),
        (asked(), "/no/such/log", 400, "/no/such/log"),
    ],
)
async def test_requests_without_a_log(request_: Any, path: str, status: int, message: str) -> None:
    result: Any = await served(path).handle(request_)
    assert result.status == status
    assert message in result.text


@pytest.mark.parametrize(
    ("chunks", "written"),
    [
        ((b"a", b"b", b"c"), b"abc"),
        ((), b""),
        ((b"a", LogReadError("spoilt")), b"aspoilt\n"),
    ],
)
async def test_a_log_is_streamed(
    monkeypatch: pytest.MonkeyPatch, chunks: tuple[Any, ...], written: bytes
) -> None:
    asked_for: list[Any] = []

    def read_log(path: Path, options: LogOptions, _is_running: Any) -> AsyncIterator[bytes]:
        asked_for.append((path, options))
        return pieces(*chunks)

    monkeypatch.setattr(container_logs, "read_log", read_log)
    monkeypatch.setattr(web, "StreamResponse", Streamed)
    result: Any = await served("/l").handle(asked(limitBytes="5"))
    assert (result.written, result.steps) == (written, ["prepared", "ended"])
    assert asked_for == [(Path("/l"), LogOptions(limit_bytes=5))]


@pytest.mark.parametrize(
    ("state", "container_id_", "wanted"),
    [(State.RUNNING, "c1", True), (State.EXITED, "c1", False), (State.RUNNING, "gone", False)],
)
async def test_a_log_is_followed_while_its_container_runs(
    state: State, container_id_: str, wanted: bool
) -> None:
    logs = served("/l", state=state)
    assert await logs._is_running(engine_has("app", id_=container_id_)) == wanted
