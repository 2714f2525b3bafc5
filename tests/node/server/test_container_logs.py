from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moorage.api.pods import PodStatus
from moorage.node.logs.lines import LogOptions
from moorage.node.server.container_logs import NoLogError, QueryError, container_id, log_options

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
    found = msgspec.convert({"containerStatuses": [{"name": "app", **status}]}, PodStatus)
    return container_id(found, "web", "app", is_previous=is_previous)


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
def test_why_there_is_none(status: dict[str, Any], is_previous: bool, complaint: str) -> None:
    with pytest.raises(NoLogError) as caught:
        chosen(status, is_previous=is_previous)
    assert str(caught.value) == complaint


def test_a_container_of_which_nothing_is_known() -> None:
    with pytest.raises(NoLogError, match='container "app" in pod "web" is not available'):
        container_id(PodStatus(), "web", "app", is_previous=False)
