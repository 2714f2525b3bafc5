"""Nobody grants what they do not hold."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.admission.rbac_escalation import RbacEscalation
from moorage.api.errors import ForbiddenError
from moorage.registry.kind import Kind
from moorage.registry.kinds.rbac import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from moorage.registry.rbac import Action, allows
from moorage.registry.request import User
from tests.admission.writes import admit, write
from tests.registry.rbac.grants import Grants, rule, user

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


def test_binding_a_role_that_is_not_there_needs_the_verb(cluster: Cluster) -> None:
    message = cluster.refusal_of(CLUSTER_ROLE_BINDING, role_ref("ghost"))
    assert 'clusterroles.rbac.authorization.k8s.io "ghost" not found' in message


def test_masters_may_grant_anything(cluster: Cluster) -> None:
    master = User("root", groups=("system:masters",))
    cluster.check(CLUSTER_ROLE, {"rules": [GET_SECRETS]}, master)
    cluster.check(CLUSTER_ROLE_BINDING, role_ref("ghost"), master)
