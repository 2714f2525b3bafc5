"""What clients are answered when objects are gone, damaged, or going at that moment."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.running_server import Answer, Running, serving

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
MAPS = "/api/v1/namespaces/default/configmaps"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


async def test_a_put_with_the_uid_of_a_deleted_object_makes_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for path, body in (
            (LEASES, {"metadata": {"name": "x"}, "spec": {"holderIdentity": "me"}}),
            (CLASSES, {"metadata": {"name": "x"}, "handler": "runc"}),
        ):
            made = (await server.ask("POST", path, body)).json
            await server.ask("DELETE", f"{path}/x")
            # The former holder renews it.
            for resource_version in (made["metadata"]["resourceVersion"], None):
                renewed = {**made, "metadata": {**made["metadata"]}}
                if resource_version is None:
                    del renewed["metadata"]["resourceVersion"]
                answer = await server.ask("PUT", f"{path}/x", renewed)
                assert (answer.status, answer.json["reason"]) == (409, "Conflict")
                uid = made["metadata"]["uid"]
                assert f"UID in precondition: {uid}, UID in object meta: " in answer.json["message"]
            assert (await server.ask("GET", f"{path}/x")).status == 404
            # Without a uid it is a new one.
            answer = await server.ask("PUT", f"{path}/x", body)
            assert answer.status == 201
            assert answer.json["metadata"]["uid"] != made["metadata"]["uid"]


async def test_of_an_object_whose_deletion_wins_a_race_a_put_says_not_found(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as server:
        for number in range(30):
            name = f"m{number}"
            made = (await server.ask("POST", MAPS, {"metadata": {"name": name}})).json
            made["data"] = {"a": "b"}
            del made["metadata"]["uid"]
            put, deleted = await asyncio.gather(
                server.ask("PUT", f"{MAPS}/{name}", made),
                server.ask("DELETE", f"{MAPS}/{name}"),
            )
            assert deleted.status == 200
            # Before the deletion, or after: in either case no other change was made.
            assert put.status in (200, 404), put.text


async def test_of_two_puts_that_create_one_creates_and_the_other_updates(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for number in range(10):
            body = {"metadata": {"name": f"x{number}"}, "rules": []}
            puts = (server.ask("PUT", f"{ROLES}/x{number}", body) for _ in range(4))
            statuses = sorted(answer.status for answer in await asyncio.gather(*puts))
            assert statuses == [200, 200, 200, 201]


def damage(directory: Path, key: str) -> int:
    """Spoil the stored value of a key; its revision."""
    with closing(sqlite3.connect(directory / "state.db")) as connection, connection:
        (revision,) = connection.execute(
            "SELECT max(revision) FROM log WHERE key = ?", (key,)
        ).fetchone()
        connection.execute("UPDATE log SET value = x'7b00' WHERE revision = ?", (revision,))
        return int(revision)


async def test_a_damaged_object_is_named_and_the_rest_is_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        for name in ("a", "b", "c"):
            await server.ask("POST", MAPS, {"metadata": {"name": name}, "data": {"k": name}})
    revision = damage(tmp_path, "configmaps/default/b")
    named = f"configmaps/default/b at revision {revision} is damaged in the store"
    async with serving(tmp_path) as server:
        for method, body in (
            ("GET", None),
            ("PUT", {"metadata": {"name": "b"}}),
            ("PATCH", b"{}"),
            ("DELETE", None),
        ):
            media = {"Content_Type": "application/merge-patch+json"} if method == "PATCH" else {}
            answer = await server.ask(method, f"{MAPS}/b", body, **media)
            assert (answer.status, answer.json["reason"]) == (500, "InternalError")
            assert named in answer.json["message"]
        answer = await server.ask("POST", MAPS, {"metadata": {"name": "b"}})
        assert answer.json["reason"] == "AlreadyExists"
        listed = await server.ask("GET", MAPS)
        assert names(listed) == ["a", "c"]
        assert named in listed.headers["Warning"]
        assert "Warning" not in (await server.ask("GET", LEASES)).headers
        await check_removal(server)
    async with serving(tmp_path) as server:
        assert names(await server.ask("GET", MAPS)) == ["a", "b", "c"]


async def check_removal(server: Running) -> None:
    """Remove the damaged object, as only an administrator may, and make it again."""
    option = "ignoreStoreReadErrorWithClusterBreakingPotential=true"
    answer = await server.ask("DELETE", f"{MAPS}/a?{option}")
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    await server.ask("POST", ROLES, {
        "metadata": {"name": "maps"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete", "get"]}],
    })  # fmt: skip
    await server.ask("POST", ROLES.replace("roles", "rolebindings"), {
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    })  # fmt: skip
    answer = await server.ask("DELETE", f"{MAPS}/b?{option}", token="alice-token")
    assert answer.status == 403, answer.text
    answer = await server.ask("DELETE", f"{MAPS}/b?{option}")
    assert answer.status == 200, answer.text
    assert (await server.ask("GET", f"{MAPS}/b")).status == 404
    assert (await server.ask("POST", MAPS, {"metadata": {"name": "b"}})).status == 201


def names(answer: Answer) -> list[Any]:
    result = [obj["metadata"]["name"] for obj in answer.json["items"]]
    return [name for name in result if name != "kube-root-ca.crt"]


async def test_names_above_every_code_point_are_listed(tmp_path: Path) -> None:
    name = "\U0010ffff\U0010ffffx"
    async with serving(tmp_path) as server:
        answer = await server.ask("POST", ROLES, {"metadata": {"name": name}, "rules": []})
        assert answer.status == 201
        assert name in names(await server.ask("GET", ROLES))
        revision = answer.json["metadata"]["resourceVersion"]
        await server.ask("POST", MAPS, {"metadata": {"name": "later"}})
        exact = f"{ROLES}?resourceVersionMatch=Exact&resourceVersion={revision}"
        assert name in names(await server.ask("GET", exact))


@pytest.mark.parametrize("timeout_s", [1, 3])
async def test_bookmarks_come_to_a_watch_that_is_never_idle(tmp_path: Path, timeout_s: int) -> None:
    async with serving(tmp_path) as server:
        made = await server.ask("POST", MAPS, {"metadata": {"name": "first"}})
        start = made.json["metadata"]["resourceVersion"]
        options = f"allowWatchBookmarks=true&timeoutSeconds={timeout_s}&resourceVersion={start}"
        path = f"{MAPS}?watch=1&{options}"
        watching = asyncio.ensure_future(server.ask("GET", path))
        number = 0
        while not watching.done():
            await server.ask("POST", MAPS, {"metadata": {"name": f"m{number}"}})
            number += 1
        seen = 0
        bookmarks = 0
        for line in (await watching).text.splitlines():
            event = json.loads(line)
            revision = int(event["object"]["metadata"]["resourceVersion"])
            if event["type"] == "BOOKMARK":
                bookmarks += 1
                seen = max(seen, revision)
            else:
                assert revision > seen
                seen = revision
        assert bookmarks == 1
