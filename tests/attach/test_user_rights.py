"""Rights of a user: which are asked for roles and bindings, and how they are said."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.meta import Raw
from moorage.attach.manifests import objects
from moorage.attach.needed_rights import (
    Grant,
    Reviewer,
    Right,
    bound_roles,
    described,
    grants,
    rights_on,
    rights_to,
    rules_of,
    served_resources,
)
from moorage.attach.served_objects import ServedObjects
from moorage.attach.values import SchedulerValues, Values
from moorage.wire.client.resources import CLUSTER_ROLES, PODS
from tests.attach.object_server import running
from tests.wire.client.fake_api import refusal

_RBAC = "rbac.authorization.k8s.io"
_RULE = {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"], "resourceNames": ["p"]}


def role(kind: str, namespace: str = "", *rules: Raw) -> Raw:
    metadata = {"name": "r", **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)}


def binding(kind: str, role_kind: str, name: str, namespace: str = "") -> Raw:
    reference = {"apiGroup": _RBAC, "kind": role_kind, "name": name}
    return {**role(kind, namespace), "roleRef": reference}


def test_a_role_is_written_by_who_has_its_rights_or_may_escalate() -> None:
    path = {"nonResourceURLs": ["/readyz"], "verbs": ["get"]}
    (cluster,) = grants([role("ClusterRole", "", _RULE, path)], {})
    assert cluster.verb == Right("escalate", _RBAC, "clusterroles", "", ("r",))
    assert cluster.rights == (
        Right("get", "", "pods/log", "", ("p",)),
        Right("get", path="/readyz"),
    )
    (local,) = grants([role("Role", "ns", _RULE)], {})
    assert local.verb == Right("escalate", _RBAC, "roles", "ns", ("r",))
    assert local.rights == (Right("get", "", "pods/log", "ns", ("p",)),)


@pytest.mark.parametrize(
    ("wanted", "verb", "rights"),
    [
        (
            [binding("ClusterRoleBinding", "ClusterRole", "other")],
            Right("bind", _RBAC, "clusterroles", "", ("other",)),
            (Right("list", "", "nodes"),),
        ),
        # Nothing is known of what it grants.
        (
            [binding("ClusterRoleBinding", "ClusterRole", "unread")],
            Right("bind", _RBAC, "clusterroles", "", ("unread",)),
            (Right("bind", _RBAC, "clusterroles", "", ("unread",)),),
        ),
        # A ClusterRole that is bound in a namespace grants its rights there.
        (
            [binding("RoleBinding", "ClusterRole", "other", "ns")],
            Right("bind", _RBAC, "clusterroles", "", ("other",)),
            (Right("list", "", "nodes", "ns"),),
        ),
        (
            [role("Role", "ns", _RULE), binding("RoleBinding", "Role", "r", "ns")],
            Right("bind", _RBAC, "roles", "ns", ("r",)),
            (Right("get", "", "pods/log", "ns", ("p",)),),
        ),
    ],
)
def test_a_binding_is_written_by_who_has_the_rights_or_may_bind(
    wanted: list[Raw], verb: Right, rights: tuple[Right, ...]
) -> None:
    known = {"other": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]}
    found = list(grants(wanted, known))[-1]
    assert (found.verb, found.rights) == (verb, rights)


def test_roles_that_are_bound_and_not_made_are_known() -> None:
    assert bound_roles(objects(Values())) == set()
    made = objects(Values(scheduler=SchedulerValues(enabled=True)))
    assert bound_roles(made) == {"system:kube-scheduler", "system:volume-scheduler"}


def test_objects_of_a_kind_and_place_are_asked_for_together() -> None:
    def pod(name: str, namespace: str) -> Raw:
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}

    unserved = {"apiVersion": "x/v1", "kind": "Unserved", "metadata": {"name": "u"}}
    wanted = [pod("b", "n"), pod("a", "n"), pod("c", "m"), unserved]
    assert list(rights_on({("v1", "Pod"): PODS}, wanted, ["create", "get"])) == [
        Right("create", "", "pods", "n"),
        Right("create", "", "pods", "m"),
        Right("get", "", "pods", "n", ("a", "b")),
        Right("get", "", "pods", "m", ("c",)),
    ]


@pytest.mark.parametrize(
    ("rights", "text"),
    [
        ([Right("list", "", "nodes")], "list nodes"),
        (
            list(rights_to(["list", "watch"], (PODS, CLUSTER_ROLES))),
            f"list, watch pods, clusterroles.{_RBAC}",
        ),
        (
            [Right("get", "", "pods", "n"), Right("patch", "", "pods", "m"),
             Right("get", path="/readyz")],
            "get pods in namespace n; patch pods in namespace m; get /readyz",
        ),
        (
            [Right("get", "", "pods", names=("a",)), Right("get", "", "pods", names=("b",))],
            "get pods",
        ),
    ],
)  # fmt: skip
def test_rights_are_said_together(rights: list[Right], text: Any) -> None:
    assert described(rights) == text


async def test_administrators_are_asked_one_question() -> None:
    async with running() as (server, client):
        reviewer = Reviewer(client)
        assert await reviewer.missing([]) == ()
        assert server.reviewed == []
        wanted = [Right("get", "", "pods"), Right("list", "", "nodes")]
        assert await reviewer.missing(wanted) == ()
        assert await reviewer.ungranted([Grant(wanted[0], (wanted[1],))]) == ()
        everything = {"verb": "*", "group": "*", "resource": "*"}
        assert server.reviewed == [{"resourceAttributes": everything}]


async def test_others_are_asked_for_each_right_once() -> None:
    async with running() as (server, client):
        server.denied |= {("get", "pods"), ("get", "pods/log"), ("list", "secrets")}
        reviewer = Reviewer(client)
        rights = [
            Right("get", "", "pods"),
            Right("list", "", "nodes"),
            Right("get", "", "pods/log", "n", ("a", "b")),
            Right("get", "", "pods"),
            Right("get", path="/readyz"),
        ]
        assert await reviewer.missing(rights) == (rights[0], rights[2])
        asked = [one["resourceAttributes"] for one in server.reviewed[1:] if len(one) == 1
                 and "resourceAttributes" in one]  # fmt: skip
        log = {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "n"}
        assert asked.count({"verb": "get", "resource": "pods"}) == 1
        assert asked.count({"verb": "list", "resource": "nodes"}) == 1
        assert [one for one in asked if one.get("subresource")] == [
            log, {**log, "name": "a"}, {**log, "name": "b"},
        ]  # fmt: skip
        path = {"nonResourceAttributes": {"path": "/readyz", "verb": "get"}}
        assert server.reviewed.count(path) == 1
        count = len(server.reviewed)
        assert await reviewer.missing(rights) == (rights[0], rights[2])
        assert len(server.reviewed) == count


@pytest.mark.parametrize(
    ("allowed", "is_missing"), [(["a", "b"], False), (["a"], True), ([], True), (["a", "c"], True)]
)
async def test_a_right_on_each_of_the_names_suffices(
    allowed: list[str], *, is_missing: bool
) -> None:
    async with running() as (server, client):
        server.denied.add(("get", "secrets"))
        server.allowed_names = set(allowed)
        right = Right("get", "", "secrets", "n", ("a", "b"))
        missing = await Reviewer(client).missing([right])
    assert missing == ((right,) if is_missing else ())


async def test_what_may_not_be_given_is_what_neither_the_verb_nor_the_rights_allow() -> None:
    bind, escalate = Right("bind", _RBAC, "clusterroles"), Right("escalate", _RBAC, "clusterroles")
    lacked, had = Right("get", "", "pods"), Right("list", "", "nodes")
    async with running() as (server, client):
        server.denied |= {("bind", "clusterroles"), ("get", "pods")}
        reviewer = Reviewer(client)
        assert await reviewer.ungranted([Grant(escalate, (lacked, had))]) == ()
        assert await reviewer.ungranted([Grant(bind, (had,))]) == ()
        assert await reviewer.ungranted([Grant(bind, (had, lacked))]) == (lacked,)


async def test_rules_of_roles_are_those_that_can_be_read() -> None:
    async with running() as (server, client):
        for name, rules in (("a", [_RULE]), ("b", None), ("c", [_RULE])):
            server.put({**role("ClusterRole"), "metadata": {"name": name}, "rules": rules})
        path = f"/apis/{_RBAC}/v1/clusterroles/c"
        server.failures["GET", path] = [refusal(403, "Forbidden")]
        found = await rules_of(ServedObjects(client), ["a", "b", "c", "missing"])
    assert found == {"a": [_RULE], "b": []}


async def test_kinds_that_are_not_served_have_no_resource() -> None:
    kinds = [("x/v1", "Unserved"), ("v1", "Pod"), ("v1", "Nothing"), ("v1", "Secret")]
    async with running() as (_, client):
        found = await served_resources(ServedObjects(client), kinds)
    assert {kind: one.plural for kind, one in found.items()} == {
        ("v1", "Pod"): "pods", ("v1", "Secret"): "secrets",
    }  # fmt: skip


def test_rights_are_limited_to_what_is_said() -> None:
    assert list(rights_to(["get", "list"], (PODS,), namespace="n", subresource="log")) == [
        Right("get", "", "pods/log", "n"), Right("list", "", "pods/log", "n"),
    ]  # fmt: skip
