"""Users grant only what they hold."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import ForbiddenError, NotFoundError
from moorage.apiserver.admission.rbac_escalation import RbacEscalation
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
)
from moorage.apiserver.registry.rbac import Action, allows
from moorage.apiserver.registry.request import User
from tests.apiserver.admission.writes import admit, write
from tests.apiserver.registry.rbac.grants import Grants, rule, user

BOB = User("bob", groups=("dev", "system:authenticated"))
GET_SECRETS = rule(["get", "list"], ["secrets"])


class Cluster:
    """Grants, and the plugin that guards them."""

    def __init__(self) -> None:
        self.grants = Grants()

    def _is_allowed(self, who: User, action: Action) -> bool:
        rules = self.grants.resolver.rules_of(who, action.namespace)
        return any(allows(held.rule, action) for held in rules)

    def check(self, kind: Kind, obj: dict[str, Any], who: User = BOB, **about: Any) -> None:
        plugin = RbacEscalation(self.grants.resolver, self._is_allowed)
        admit(plugin, write(kind, {"metadata": {"name": "x"}, **obj}, user=who, **about))

    def refusal_of(self, kind: Kind, obj: dict[str, Any]) -> str:
        with pytest.raises(ForbiddenError) as refusal:
            self.check(kind, obj)
        return refusal.value.message


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def role_ref(name: str, kind: str = "ClusterRole") -> dict[str, Any]:
    return {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}}


def test_a_role_with_rules_one_lacks_is_refused_with_the_rules(cluster: Cluster) -> None:
    message = cluster.refusal_of(ROLE, {"rules": [GET_SECRETS]})
    assert message == (
        'roles.rbac.authorization.k8s.io "x" is forbidden: user "bob" '
        '(groups=["dev" "system:authenticated"]) is attempting to grant RBAC permissions not '
        'currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )


def test_only_what_is_missing_is_named(cluster: Cluster) -> None:
    cluster.grants.role("half", rule(["get"], ["secrets"]))
    cluster.grants.bind("half", user("bob"))
    message = cluster.refusal_of(CLUSTER_ROLE, {"rules": [GET_SECRETS]})
    assert message.endswith('\n{APIGroups:[""], Resources:["secrets"], Verbs:["list"]}')


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_what_one_holds_in_the_namespace_one_may_grant_there(
    cluster: Cluster, operation: str
) -> None:
    cluster.grants.role("all", GET_SECRETS)
    cluster.grants.bind("all", user("bob"), namespace="default")
    cluster.check(ROLE, {"rules": [GET_SECRETS]}, operation=operation, old={"metadata": {}})
    cluster.check(ROLE_BINDING, role_ref("all"), operation=operation, old={"metadata": {}})
    with pytest.raises(ForbiddenError):
        cluster.check(CLUSTER_ROLE_BINDING, role_ref("all"))


def test_rules_that_are_not_filled_in_yet_grant_nothing(cluster: Cluster) -> None:
    cluster.check(CLUSTER_ROLE, {"aggregationRule": {}})


def test_the_verb_escalate_lets_one_write_any_role(cluster: Cluster) -> None:
    group = "rbac.authorization.k8s.io"
    cluster.grants.role("esc", rule(["escalate"], ["clusterroles"], group))
    cluster.grants.bind("esc", user("bob"))
    cluster.check(CLUSTER_ROLE, {"rules": [GET_SECRETS]})
    with pytest.raises(ForbiddenError):
        cluster.check(ROLE, {"rules": [GET_SECRETS]})


def test_the_verb_bind_lets_one_bind_the_role_it_names(cluster: Cluster) -> None:
    group = "rbac.authorization.k8s.io"
    cluster.grants.role("secrets", GET_SECRETS)
    cluster.grants.role("binder", rule(["bind"], ["clusterroles"], group, ["secrets", "ghost"]))
    cluster.grants.bind("binder", user("bob"))
    cluster.check(CLUSTER_ROLE_BINDING, role_ref("secrets"))
    cluster.check(CLUSTER_ROLE_BINDING, role_ref("ghost"))
    cluster.grants.role("other", rule(["delete"], ["secrets"]))
    with pytest.raises(ForbiddenError):
        cluster.check(CLUSTER_ROLE_BINDING, role_ref("other"))


def test_binding_a_role_that_is_absent_needs_the_verb(cluster: Cluster) -> None:
    with pytest.raises(NotFoundError) as refusal:
        cluster.check(CLUSTER_ROLE_BINDING, role_ref("ghost"))
    assert refusal.value.message == 'clusterroles.rbac.authorization.k8s.io "ghost" not found'
    with pytest.raises(NotFoundError) as refusal:
        cluster.check(ROLE_BINDING, role_ref("ghost", "Role"))
    assert refusal.value.message == 'roles.rbac.authorization.k8s.io "ghost" not found'


def test_masters_may_grant_anything(cluster: Cluster) -> None:
    master = User("root", groups=("system:masters",))
    cluster.check(CLUSTER_ROLE, {"rules": [GET_SECRETS]}, master)
    cluster.check(CLUSTER_ROLE_BINDING, role_ref("ghost"), master)


AGGREGATED = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
PLAIN: dict[str, Any] = {"metadata": {"name": "x"}, "rules": []}


def clause(message: str) -> str:
    return message.partition(" is forbidden: ")[2]


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ({**PLAIN, **AGGREGATED}, None),
        ({**PLAIN, **AGGREGATED}, PLAIN),
        (PLAIN, {**PLAIN, **AGGREGATED}),
        ({**PLAIN, **AGGREGATED, "metadata": {"name": "x", "labels": {"c": "d"}}},
         {**PLAIN, **AGGREGATED}),
    ],
    ids=["created with it", "added", "taken away", "only labels change"],
)  # fmt: skip
def test_an_aggregation_rule_needs_everything(
    cluster: Cluster, new: dict[str, Any], old: dict[str, Any] | None
) -> None:
    writes = rule(["create", "patch", "update", "bind"], ["*"], "rbac.authorization.k8s.io")
    cluster.grants.role("roles", writes)
    cluster.grants.bind("roles", user("bob"))
    about: dict[str, Any] = {"operation": "UPDATE", "old": old} if old else {}
    with pytest.raises(ForbiddenError) as refusal:
        cluster.check(CLUSTER_ROLE, new, **about)
    expected = "must have cluster-admin privileges to use the aggregationRule"
    assert clause(refusal.value.message) == expected
    assert refusal.value.code == 403


def test_everything_is_every_resource_and_every_path(cluster: Cluster) -> None:
    every_path = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    cluster.grants.bind("all", user("bob"))
    for held in (
        [rule(["*"], ["*"], "other.example"), every_path],
        [rule(["get", "create", "update", "patch", "delete"], ["*"], "*"), every_path],
    ):
        cluster.grants.role("all", *held)
        with pytest.raises(ForbiddenError):
            cluster.check(CLUSTER_ROLE, AGGREGATED)
    cluster.grants.role("all", rule(["*"], ["*"], "*"), every_path)
    cluster.check(CLUSTER_ROLE, AGGREGATED)


def test_the_verb_escalate_allows_an_aggregation_rule(cluster: Cluster) -> None:
    group = "rbac.authorization.k8s.io"
    cluster.grants.role("esc", rule(["escalate"], ["clusterroles"], group))
    cluster.grants.bind("esc", user("bob"))
    cluster.check(CLUSTER_ROLE, AGGREGATED)
    old = {**PLAIN, **AGGREGATED}
    cluster.check(CLUSTER_ROLE, PLAIN, operation="UPDATE", old=old)


def test_a_label_that_an_aggregate_selects_is_a_grant_of_the_roles_rules(cluster: Cluster) -> None:
    """Subjects bound to the aggregate would get the rules of the labelled role."""
    old = {"metadata": {"name": "x"}, "rules": [GET_SECRETS]}
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    labelled = {**old, "metadata": {"name": "x", "labels": labels}}
    with pytest.raises(ForbiddenError):
        cluster.check(CLUSTER_ROLE, labelled, operation="UPDATE", old=old)


@pytest.mark.parametrize("kind", [ROLE, CLUSTER_ROLE])
def test_the_garbage_collector_may_change_what_an_end_needs(cluster: Cluster, kind: Kind) -> None:
    role = {"rules": [GET_SECRETS]}
    old = {"metadata": {"name": "x", "finalizers": ["a"], "ownerReferences": [{}]}, **role}
    cluster.check(kind, role, operation="UPDATE", old=old)
    changed = {"metadata": {"name": "x", "annotations": {"a": "b"}}, **role}
    with pytest.raises(ForbiddenError):
        cluster.check(kind, changed, operation="UPDATE", old=old)


@pytest.mark.parametrize(
    ("field", "is_free"),
    [("ownerReferences", True), ("finalizers", True), ("managedFields", True),
     ("resourceVersion", True), ("annotations", False), ("labels", False)],
)  # fmt: skip
def test_fields_that_grant_nothing(cluster: Cluster, field: str, is_free: bool) -> None:
    role = {"rules": [GET_SECRETS]}
    changed = {"metadata": {"name": "x", field: ["a"]}, **role}
    old = {"metadata": {"name": "x"}, **role}
    if is_free:
        cluster.check(ROLE, changed, operation="UPDATE", old=old)
        return
    with pytest.raises(ForbiddenError):
        cluster.check(ROLE, changed, operation="UPDATE", old=old)


def test_missing_rules_are_listed_in_order(cluster: Cluster) -> None:
    rules = [rule(["get"], ["secrets"]), rule(["get"], ["pods"]), rule(["get"], ["nodes"])]
    lines = cluster.refusal_of(CLUSTER_ROLE, {"rules": rules}).splitlines()[1:]
    assert [line.split('"')[3] for line in lines] == ["nodes", "pods", "secrets"]


def test_escalate_with_names_is_for_roles_that_exist(cluster: Cluster) -> None:
    group = "rbac.authorization.k8s.io"
    cluster.grants.role("esc", rule(["escalate"], ["clusterroles"], group, ["x"]))
    cluster.grants.bind("esc", user("bob"))
    role = {"rules": [GET_SECRETS]}
    cluster.check(CLUSTER_ROLE, role, operation="UPDATE", old=PLAIN)
    with pytest.raises(ForbiddenError):
        cluster.check(CLUSTER_ROLE, role)


def test_a_role_too_large_to_compare_is_refused_and_says_what_to_do(cluster: Cluster) -> None:
    names = [f"n{number}" for number in range(2_000)]
    huge = {"verbs": names, "apiGroups": names, "resources": names}
    message = cluster.refusal_of(ROLE, {"rules": [huge]})
    assert "8000000000 permissions are too many to compare" in message
    assert "several roles" in message
