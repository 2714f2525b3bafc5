"""Changes: what an apply does to an object, and what no value asks for any more."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import NotFoundError
from moorage.attach.changes import Change, Verb, change_of, is_attached, plan_changes, shown, stale
from moorage.attach.served_objects import ServedObjects
from moorage.wire.client.discovery import NotServedError
from tests.attach.object_server import running
from tests.wire.client.fake_api import refusal

APPLIED = [{"manager": "moorage-attach", "operation": "Apply"}]


def config(name: str = "c", data: str = "1", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "ns", **metadata},
        "data": {"k": data},
    }


def test_an_object_that_is_not_there_is_created() -> None:
    change = change_of(config(), None, config())
    assert change.verb is Verb.CREATE
    assert change.diff.startswith("--- /dev/null\n+++ ConfigMap ns/c\n")


def test_what_the_server_keeps_for_itself_is_no_change() -> None:
    before = config(resourceVersion="1", managedFields=[], uid="u")
    after = config(resourceVersion="1", managedFields=APPLIED, uid="u") | {"status": {"x": 1}}
    assert change_of(config(), before, after).verb is Verb.KEEP


def test_a_change_is_shown_as_its_lines() -> None:
    change = change_of(config(data="2"), config(), config(data="2"))
    assert change.verb is Verb.CHANGE
    lines = change.diff.splitlines()
    assert [line for line in lines if line[0] in "+-" and line[:3] not in ("---", "+++")] == [
        '-  k: "1"',
        '+  k: "2"',
    ]


def test_what_attach_made_and_no_value_asks_for_is_removed() -> None:
    present = [
        config("kept", managedFields=APPLIED),
        config("gone", managedFields=APPLIED),
        config("of others", managedFields=[{"manager": "kubectl", "operation": "Apply"}]),
    ]
    removed = list(stale(present, [config("kept")]))
    assert [(change.verb, change.obj["metadata"]["name"]) for change in removed] == [
        (Verb.REMOVE, "gone")
    ]


@pytest.mark.parametrize(
    ("manager", "operation", "is_ours"),
    [
        ("moorage-attach", "Apply", True),
        ("moorage-attach", "Update", False),
        ("kubectl", "Apply", False),
    ],
)
def test_an_object_is_of_an_attachment_that_applied_it(
    manager: str, operation: str, *, is_ours: bool
) -> None:
    other = {"manager": "other", "operation": "Apply"}
    fields = [other, {"manager": manager, "operation": operation}]
    assert is_attached(config(managedFields=fields)) is is_ours
    assert not is_attached(config(managedFields=None))


def test_what_the_server_keeps_for_itself_is_not_shown() -> None:
    metadata = dict.fromkeys(
        ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"),
        "x",
    )
    stored = config(labels={"a": "b"}, **metadata) | {"status": {"x": 1}}
    assert shown(stored) == config(labels={"a": "b"})
    assert stored["metadata"]["uid"] == "x"


def test_a_removal_is_shown_as_a_file_that_goes() -> None:
    (change,) = stale([config(managedFields=APPLIED)], [])
    assert change.diff.startswith("--- ConfigMap ns/c\n+++ /dev/null\n")
    assert change_of(config(), config(), config()).diff == ""


_NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
_RBAC = "rbac.authorization.k8s.io"


def role(kind: str, name: str, namespace: str = "ns", **more: Any) -> dict[str, Any]:
    place = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **place}
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **more}


def binding(role_kind: str, namespace: str = "other") -> dict[str, Any]:
    reference = {"apiGroup": _RBAC, "kind": role_kind, "name": "r"}
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    return role(kind, "b", namespace, roleRef=reference)


@pytest.mark.parametrize(
    ("obj", "others", "is_planned"),
    [
        (config(), [_NAMESPACE], True),
        (config(), [], False),
        (config(), [_NAMESPACE | {"metadata": {"name": "another"}}], False),
        (binding("Role"), [role("Role", "r", "other")], True),
        (binding("Role"), [role("Role", "r", "elsewhere")], False),
        (binding("Role"), [role("ClusterRole", "r", "")], False),
        (binding("ClusterRole"), [role("ClusterRole", "r", "")], True),
        (binding("ClusterRole"), [role("Role", "r", "other")], False),
        (binding("ClusterRole", ""), [role("ClusterRole", "r", "")], True),
        (binding("ClusterRole", ""), [], False),
    ],
)
async def test_what_cannot_be_tried_before_the_installation_is_shown_as_it_is_sent(
    obj: dict[str, Any], others: list[dict[str, Any]], *, is_planned: bool
) -> None:
    async with running() as (server, client):
        served = ServedObjects(client)
        resource = await served.resource(obj["apiVersion"], obj["kind"])
        path = resource.path(obj["metadata"].get("namespace"), obj["metadata"]["name"])
        server.failures["PATCH", path] = [refusal(404, "NotFound")]
        server.put(_NAMESPACE | {"metadata": {"name": "other"}})
        server.put(_NAMESPACE | {"metadata": {"name": "elsewhere"}})
        if is_planned:
            plan = await plan_changes(served, [*others, obj])
            assert plan[-1] == Change(Verb.CREATE, obj, None, obj)
            assert [change.verb for change in plan] == [Verb.CREATE] * (len(others) + 1)
        else:
            with pytest.raises(NotFoundError):
                await plan_changes(served, [*others, obj])
        assert server.writes == []


async def test_a_kind_that_is_neither_served_nor_installed_is_an_error() -> None:
    unserved = config() | {"apiVersion": "example.com/v1"}
    async with running() as (_, client):
        served = ServedObjects(client)
        with pytest.raises(NotServedError):
            await plan_changes(served, [unserved])
        (_, change) = await plan_changes(served, [_NAMESPACE, unserved])
    assert change == Change(Verb.CREATE, unserved, None, unserved)
