"""Options of lists and watches in every combination, as a kube-apiserver 1.36 answered them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tests.apiserver.running_server import Running, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/api/v1/namespaces/default/configmaps"
INVALID = 'ListOptions.meta.k8s.io "" is invalid: '
MATCH = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden "
UNLESS = f"{MATCH}unless resourceVersion is provided"
CONTINUED = f"{MATCH}when continue is provided"
FOR_LIST = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
FOR_WATCH = f"{MATCH}for watch unless sendInitialEvents is provided"
SENDS = (
    "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to "
    "NotOlderThan"
)
EXACT_WATCH = 'resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"'
BAD = 'resourceVersion: Invalid value: "bad": strconv.ParseUint: parsing "bad": invalid syntax'
NEXT = "W10"
"""A token that is none; of two complaints that about the options comes first."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    directory: Path = tmp_path_factory.mktemp("options")
    async with serving(directory) as running:
        for name in "abc":
            await running.ask("POST", PATH, {"metadata": {"name": name, "labels": {"l": name}}})
        yield running


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("resourceVersionMatch=Exact", 422, INVALID + UNLESS),
        ("resourceVersionMatch=NotOlderThan", 422, INVALID + UNLESS),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, INVALID +
         'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for '
         'resourceVersion "0"'),
        ("resourceVersion=1&resourceVersionMatch=Odd", 422, INVALID +
         'resourceVersionMatch: Unsupported value: "Odd": supported values: "Exact", '
         '"NotOlderThan", ""'),
        (f"continue={NEXT}&resourceVersionMatch=Exact", 422, f"{INVALID}[{UNLESS}, {CONTINUED}]"),
        (f"continue={NEXT}&resourceVersionMatch=NotOlderThan&resourceVersion=0", 422,
         INVALID + CONTINUED),
        ("sendInitialEvents=true", 422, INVALID + FOR_LIST),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 422,
         f"{INVALID}[{UNLESS}, {FOR_LIST}]"),
        ("resourceVersion=bad", 400, f"invalid resource version: {BAD}"),
        ("limit=abc", 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ("continue=xx&resourceVersion=5", 400, "invalid continue token: continue key is not valid:"
         " invalid character 'Ç' looking for beginning of value"),
        ("watch=1&resourceVersionMatch=Exact", 422, f"{INVALID}[{FOR_WATCH}, {EXACT_WATCH}]"),
        ("watch=1&resourceVersionMatch=NotOlderThan", 422, INVALID + FOR_WATCH),
        ("watch=1&sendInitialEvents=true", 422, INVALID + SENDS),
        ("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", 422,
         f"{INVALID}[{SENDS}, {EXACT_WATCH}]"),
        ("watch=1&continue=x", 422, INVALID + CONTINUED),
        ("watch=1&resourceVersion=bad", 500, BAD),
        ("labelSelector=a%20b", 400,
         "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("labelSelector=l%20in%20(a", 400,
         "unable to parse requirement: found '', expected: ',' or ')'"),
        ("fieldSelector=spec.foo%3D1", 400, '"spec.foo" is not a known field selector: only '
         '"metadata.name", "metadata.namespace"'),
    ],
)  # fmt: skip
async def test_what_is_refused(server: Running, query: str, code: int, message: str) -> None:
    answer = await server.ask("GET", f"{PATH}?{query}")
    assert (answer.status, answer.json["message"]) == (code, message)


NAMES = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("query", "names", "is_now", "remaining"),
    [
        ("", NAMES, True, None),
        ("resourceVersion=0", NAMES, True, None),
        ("resourceVersion=0&limit=1", NAMES, True, None),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1", NAMES, True, None),
        ("resourceVersion={now}", NAMES, True, None),
        ("resourceVersion={now}&limit=1", ["a"], True, 2),
        ("resourceVersion={before}&limit=5", ["a", "b"], False, None),
        ("resourceVersion={before}&resourceVersionMatch=NotOlderThan", NAMES, True, None),
        ("resourceVersion={before}&resourceVersionMatch=Exact", ["a", "b"], False, None),
        ("resourceVersion={before}&resourceVersionMatch=Exact&limit=1", ["a"], False, 1),
        ("resourceVersion={before}", NAMES, True, None),
        ("limit=-1", NAMES, True, None),
        ("limit=2&labelSelector=l", ["a", "b"], True, None),
        ("fieldSelector=metadata.name%3Da", ["a"], True, None),
    ],
)
async def test_what_is_listed(
    server: Running, query: str, names: list[str], is_now: bool, remaining: int | None
) -> None:
    now = int((await server.ask("GET", PATH)).json["metadata"]["resourceVersion"])
    places = {"now": now, "before": now - 1}
    listed = (await server.ask("GET", f"{PATH}?{query.format_map(places)}")).json
    assert [item["metadata"]["name"] for item in listed["items"]] == names
    meta = listed["metadata"]
    assert meta["resourceVersion"] == str(now if is_now else now - 1)
    assert meta.get("remainingItemCount") == remaining


TOO_LARGE = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}


@pytest.mark.parametrize("path", [PATH, f"{PATH}/a"])
async def test_a_revision_that_is_not_yet_there(server: Running, path: str) -> None:
    now = int((await server.ask("GET", PATH)).json["metadata"]["resourceVersion"])
    answer = await server.ask("GET", f"{path}?resourceVersion={now + 100}")
    assert answer.status == 504
    _too_large(answer.json, now)


def _too_large(status: dict[str, Any], now: int) -> None:
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert status["message"] == (
        f"Timeout: Too large resource version: {now + 100}, current: {now}"
    )
    assert status["details"] == {"causes": [TOO_LARGE], "retryAfterSeconds": 1}


async def test_initial_events_of_a_revision_that_is_not_yet_there(server: Running) -> None:
    now = int((await server.ask("GET", PATH)).json["metadata"]["resourceVersion"])
    answer = await server.ask(
        "GET", f"{PATH}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        f"&resourceVersion={now + 100}",
    )  # fmt: skip
    assert answer.status == 200
    assert answer.json["type"] == "ERROR"
    _too_large(answer.json["object"], now)


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("", ["ADDED"] * 3),
        ("resourceVersion=0", ["ADDED"] * 3),
        ("allowWatchBookmarks=true", [*["ADDED"] * 3, "BOOKMARK"]),
        ("allowWatchBookmarks=true&resourceVersion=0", [*["ADDED"] * 3, "BOOKMARK"]),
        ("allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
         [*["ADDED"] * 3, "BOOKMARK"]),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", ["ADDED"] * 3),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", []),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={before}",
         ["ADDED"]),
        ("resourceVersion={before}", ["ADDED"]),
        ("resourceVersion={now}", []),
        ("limit=1", ["ADDED"] * 3),
        ("resourceVersion={now}&continue=x", []),
        ("fieldSelector=metadata.name%3Db", ["ADDED"]),
    ],
)  # fmt: skip
async def test_what_a_watch_begins_with(server: Running, query: str, types: list[str]) -> None:
    now = int((await server.ask("GET", PATH)).json["metadata"]["resourceVersion"])
    places = {"now": now, "before": now - 1}
    path = f"{PATH}?watch=1&timeoutSeconds=1&{query.format_map(places)}"
    lines = (await server.ask("GET", path)).body.splitlines()
    events = [msgspec.json.decode(line) for line in lines]
    # A bookmark precedes the end of a watch too.
    marks = [event for event in events if event["type"] == "BOOKMARK"]
    ended = [
        mark for mark in marks
        if mark["object"]["metadata"].get("annotations") == {"k8s.io/initial-events-end": "true"}
    ]  # fmt: skip
    assert len(ended) == types.count("BOOKMARK")
    assert [event["type"] for event in events if event["type"] != "BOOKMARK"] == [
        type_ for type_ in types if type_ != "BOOKMARK"
    ]
    for mark in ended:
        assert mark["object"]["metadata"]["resourceVersion"] == str(now)
        assert events.index(mark) == types.index("BOOKMARK")


@pytest.mark.parametrize(
    ("accept", "code", "message"),
    [
        ("application/json;as=Table;g=meta.k8s.io;v=v1", 400,
         "Unable to convert to Table as requested: includeObject: Invalid value: \"Odd\": must be "
         "'Metadata', 'Object', 'None', or empty"),
        ("text/html", 406, "406: Not Acceptable\n\nAvailable representations: application/json, "
         "application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, "
         "application/vnd.kubernetes.protobuf;stream=watch"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", 406,
         "you requested PartialObjectMetadata, but the requested object is a list "
         "(*core.ConfigMapList)"),
        ("application/json;stream=odd", 406, "only the following media types are accepted: "
         "application/json, application/yaml, application/vnd.kubernetes.protobuf"),
    ],
)  # fmt: skip
async def test_forms_that_are_refused(
    server: Running, accept: str, code: int, message: str
) -> None:
    answer = await server.ask("GET", f"{PATH}?includeObject=Odd", Accept=accept)
    assert (answer.status, answer.json["message"]) == (code, message)
    # A client that takes no form of a Status gets it indented.
    assert answer.text.startswith('{\n  "kind": "Status"')
