"""Bindings: to whom, where, and what for."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.request import User
from tests.apiserver.registry.rbac.grants import Grants, group, rule, user

GET_PODS = rule(["get"], ["pods"])


def sources(grants: Grants, who: User, namespace: str) -> list[str]:
    return [held.source for held in grants.resolver.rules_of(who, namespace)]


@pytest.mark.parametrize(
    ("subject", "who", "is_held"),
    [
        (user("alice"), User("alice"), True),
        (user("alice"), User("bob"), False),
        (group("dev"), User("bob", groups=("ops", "dev")), True),
        (group("dev"), User("dev"), False),
        ({"kind": "ServiceAccount", "name": "sa", "namespace": "ns"},
         User("system:serviceaccount:ns:sa"), True),
        ({"kind": "ServiceAccount", "name": "sa", "namespace": "ns"},
         User("system:serviceaccount:other:sa"), False),
        ({"kind": "Robot", "name": "alice"}, User("alice"), False),
    ],
)  # fmt: skip
def test_a_cluster_wide_binding_holds_everywhere_for_its_subjects(
    subject: dict[str, Any], who: User, is_held: bool
) -> None:
    grants = Grants()
    grants.role("reader", GET_PODS)
    grants.bind("reader", subject)
    assert bool(sources(grants, who, "")) is is_held
    assert bool(sources(grants, who, "any")) is is_held


def test_a_namespaced_binding_holds_in_its_namespace() -> None:
    grants = Grants()
    grants.role("reader", GET_PODS)
    grants.role("writer", rule(["create"], ["pods"]), namespace="here")
    grants.bind("reader", user("alice"), namespace="here")
    grants.bind("writer", user("alice"), namespace="here", kind="Role")
    alice = User("alice")
    assert sources(grants, alice, "here") == [
        'RBAC: allowed by RoleBinding "reader/here" of ClusterRole "reader" to User "alice"',
        'RBAC: allowed by RoleBinding "writer/here" of Role "writer" to User "alice"',
    ]
    assert sources(grants, alice, "there") == []
    assert sources(grants, alice, "") == []


def test_an_account_without_namespace_is_the_bindings() -> None:
    grants = Grants()
    grants.role("reader", GET_PODS)
    grants.bind("reader", {"kind": "ServiceAccount", "name": "sa"}, namespace="here")
    assert sources(grants, User("system:serviceaccount:here:sa"), "here")


def test_a_binding_to_a_role_that_is_not_there_grants_nothing() -> None:
    grants = Grants()
    grants.bind("ghost", user("alice"))
    assert sources(grants, User("alice"), "") == []


def test_the_reason_names_binding_role_and_subject() -> None:
    grants = Grants()
    grants.role("reader", GET_PODS)
    grants.bind("reader", {"kind": "ServiceAccount", "name": "sa", "namespace": "ns"})
    assert sources(grants, User("system:serviceaccount:ns:sa"), "") == [
        'RBAC: allowed by ClusterRoleBinding "reader" of ClusterRole "reader" '
        'to ServiceAccount "sa/ns"'
    ]
