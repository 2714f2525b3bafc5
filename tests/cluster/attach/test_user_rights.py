"""Rights of a user: which are asked for roles and bindings, and how they are said."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.meta import Raw
from moorage.client.resources import CLUSTER_ROLES, PODS
from moorage.cluster.attach.manifests import objects
from moorage.cluster.attach.user_rights import (
    Right,
    bound_roles,
    described,
    grants,
    rights_on,
    rights_to,
)
from moorage.cluster.attach.values import SchedulerValues, Values

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
