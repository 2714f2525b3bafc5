"""No sequence of writes to roles and bindings gives anyone what the writer does not hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.errors import StatusError
from moorage.api.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding
from moorage.apiserver.admission.rbac_escalation import RbacEscalation
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
)
from moorage.apiserver.registry.rbac import Action, RuleResolver, allows, uncovered
from moorage.apiserver.registry.request import User
from moorage.controllers.role_aggregation import gathered_rules
from tests.apiserver.admission.writes import admit, write
from tests.apiserver.registry.rbac.grants import rule

GROUP = "rbac.authorization.k8s.io"
BOB, EVE = User("bob", groups=("dev",)), User("eve")
NAMESPACES = ("", "default", "other")
LABELS: tuple[dict[str, str], ...] = ({}, {"gather": "a"}, {"gather": "b"}, {"bootstrap": "yes"})
RULES = (
    rule(["get"], ["secrets"]),
    rule(["get", "list"], ["pods"]),
    rule(["*"], ["*"], "*"),
    rule(["escalate", "bind"], ["clusterroles", "roles"], GROUP),
    {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
TYPES: dict[str, Any] = {
    "roles": Role, "clusterroles": ClusterRole, "rolebindings": RoleBinding,
    "clusterrolebindings": ClusterRoleBinding,
}  # fmt: skip
EVERYTHING = [RULES[2], RULES[5]]


class World:
    """Roles and bindings, as the API server keeps them and the controller gathers them."""

    def __init__(self, held: list[dict[str, Any]], locally: list[dict[str, Any]]) -> None:
        self._stored: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.put(CLUSTER_ROLE, "", role("cluster-admin", EVERYTHING, {"bootstrap": "yes"}))
        self.put(CLUSTER_ROLE, "", role("gatherer", [], {}, [{"matchLabels": {"gather": "a"}}]))
        self.put(CLUSTER_ROLE, "", role("own", held, {}))
        self.put(ROLE, "default", role("local", locally, {}))
        self.put(CLUSTER_ROLE_BINDING, "", binding("own", "ClusterRole", "own", "bob"))
        self.put(ROLE_BINDING, "default", binding("local", "Role", "local", "bob"))
        # Anyone may bind himself to a role without rules.
        self.put(CLUSTER_ROLE, "", role("mine", [], {}))
        self.put(CLUSTER_ROLE_BINDING, "", binding("b1", "ClusterRole", "mine", "bob"))
        readers: list[Any] = [
            Reader(self._stored, kind)
            for kind in (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
        ]
        self.resolver = RuleResolver(*readers)
        self._plugin = RbacEscalation(self.resolver, self._is_allowed)
        self.gather()

    def put(self, kind: Kind, namespace: str, obj: dict[str, Any]) -> None:
        self._stored[kind.plural, namespace, obj["metadata"]["name"]] = obj

    def try_write(self, kind: Kind, namespace: str, obj: dict[str, Any]) -> None:
        """As bob, who may write roles and bindings everywhere, but no more than that."""
        old = self._stored.get((kind.plural, namespace, obj["metadata"]["name"]))
        if old is not None and old.get("roleRef") != obj.get("roleRef"):
            return  # Refused by validation.
        about: dict[str, Any] = {"operation": "UPDATE", "old": old} if old else {}
        try:
            admit(self._plugin, write(kind, obj, user=BOB, namespace=namespace, **about))
        except StatusError:
            return
        self.put(kind, namespace, obj)
        self.gather()

    def gather(self) -> None:
        """What the aggregation controller does, until nothing changes any more."""
        roles = Reader(self._stored, CLUSTER_ROLE)
        for _ in range(4):
            for obj in list(roles.all()):
                stored = self._stored["clusterroles", "", obj.metadata.name]
                gathered = gathered_rules(obj, roles.all())
                changed = {**stored, "rules": msgspec.to_builtins(gathered)}
                self._stored["clusterroles", "", obj.metadata.name] = changed

    def rules_of(self, who: User, namespace: str) -> list[PolicyRule]:
        return [held.rule for held in self.resolver.rules_of(who, namespace)]

    def _is_allowed(self, who: User, action: Action) -> bool:
        return any(allows(rule, action) for rule in self.rules_of(who, action.namespace))


class Reader:
    """A TypedReader of the world's dictionary."""

    def __init__(self, stored: dict[tuple[str, str, str], dict[str, Any]], kind: Kind) -> None:
        self._stored, self._plural, self._type = stored, kind.plural, TYPES[kind.plural]

    def get(self, name: str, namespace: str = "") -> Any:
        obj = self._stored.get((self._plural, namespace, name))
        return None if obj is None else msgspec.convert(obj, self._type)

    def all(self, namespace: str = "") -> Iterable[Any]:
        for plural, home, name in list(self._stored):
            if (plural, home) == (self._plural, namespace):
                yield self.get(name, namespace)


def role(
    name: str, rules: list[dict[str, Any]], labels: dict[str, str],
    selectors: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:  # fmt: skip
    obj: dict[str, Any] = {"metadata": {"name": name, "labels": labels}, "rules": rules}
    return {**obj, "aggregationRule": {"clusterRoleSelectors": selectors}} if selectors else obj


def binding(name: str, kind: str, role_name: str, user: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    }


NAMES = ("cluster-admin", "gatherer", "own", "mine", "local")
# Often none: a role without rules is where an escalation begins.
SOME_RULES: st.SearchStrategy[list[Any]] = st.just([]) | st.lists(
    st.sampled_from(RULES), max_size=2
)
SELECTORS: st.SearchStrategy[Any] = st.sampled_from((
    None, [{"matchLabels": {"gather": "a"}}], [{"matchLabels": {"bootstrap": "yes"}}],
    [{}], [{"matchExpressions": [{"key": "bootstrap", "operator": "Exists"}]}],
))  # fmt: skip
ROLES = st.builds(
    role, st.just("mine") | st.sampled_from(NAMES), SOME_RULES, st.sampled_from(LABELS), SELECTORS
)
BINDINGS = st.builds(
    binding, st.sampled_from(("b1", "b2", "own")), st.sampled_from(("ClusterRole", "Role")),
    st.sampled_from(NAMES), st.sampled_from(("bob", "eve")),
)  # fmt: skip
WRITES = st.one_of(
    st.tuples(st.just(CLUSTER_ROLE), st.just(""), ROLES),
    st.tuples(st.just(ROLE), st.sampled_from(NAMESPACES[1:]), ROLES),
    st.tuples(st.just(CLUSTER_ROLE_BINDING), st.just(""), BINDINGS),
    st.tuples(st.just(ROLE_BINDING), st.sampled_from(NAMESPACES[1:]), BINDINGS),
)
# Neither everything nor the verbs that are there to be used for more.
HARMLESS = st.lists(st.sampled_from((RULES[0], RULES[1], RULES[4])), max_size=2)


@given(held=HARMLESS, locally=HARMLESS, writes=st.lists(WRITES, min_size=4, max_size=16))
def test_no_user_gains_rules_that_the_writer_lacks(
    held: list[dict[str, Any]],
    locally: list[dict[str, Any]],
    writes: list[tuple[Kind, str, dict[str, Any]]],
) -> None:
    world = World(held, locally)
    before = {namespace: world.rules_of(BOB, namespace) for namespace in NAMESPACES}
    for kind, namespace, obj in writes:
        world.try_write(kind, namespace, obj)
    for namespace in NAMESPACES:
        for who in (BOB, EVE):
            gained = uncovered(before[namespace], world.rules_of(who, namespace))
            assert not gained, (who.name, namespace, gained)


def test_the_attack_would_be_found() -> None:
    """What the plugin stops is an escalation in this world: else the test above shows nothing."""
    world = World([], [])
    gathering = role("mine", [], {}, [{"matchLabels": {"bootstrap": "yes"}}])
    world.try_write(CLUSTER_ROLE, "", gathering)
    world.put(CLUSTER_ROLE, "", gathering)
    world.put(CLUSTER_ROLE_BINDING, "", binding("b1", "ClusterRole", "mine", "bob"))
    world.gather()
    assert uncovered([], world.rules_of(BOB, ""))
