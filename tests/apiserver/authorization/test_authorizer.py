"""RBAC decisions, their words, and what they are remembered by."""

from __future__ import annotations

import tracemalloc

import pytest

from moorage.api.errors import ForbiddenError
from moorage.apiserver.authorization import Authorizer, NodeAuthorizer
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User
from tests.apiserver.registry.rbac.grants import Grants, rule, user

ALICE = User("alice", groups=("system:authenticated",))
GET_POD = Action(verb="get", resource="pods", namespace="ns", name="p")


class Court:
    """Grants and the authorizer that reads them."""

    def __init__(self) -> None:
        self.grants = Grants()
        self.authorizer = Authorizer(
            self.grants.resolver,
            NodeAuthorizer(lambda *_: (), lambda *_: None, lambda _: None, lambda *_: None),
        )


@pytest.fixture
def court() -> Court:
    return Court()


def test_nothing_is_allowed_that_no_rule_allows(court: Court) -> None:
    assert not court.authorizer.is_allowed(ALICE, GET_POD)


def test_a_rule_allows_and_says_why(court: Court) -> None:
    court.grants.role("reader", rule(["get"], ["pods"]))
    court.grants.bind("reader", user("alice"))
    decision = court.authorizer.decide(ALICE, GET_POD)
    assert decision.is_allowed
    assert decision.reason == (
        'RBAC: allowed by ClusterRoleBinding "reader" of ClusterRole "reader" to User "alice"'
    )


def test_masters_may_do_everything(court: Court) -> None:
    master = User("root", groups=("system:masters",))
    assert court.authorizer.is_allowed(master, GET_POD)
    assert court.authorizer.is_allowed(master, Action(verb="get", path="/metrics"))


def test_decisions_are_remembered_until_roles_change(court: Court) -> None:
    assert not court.authorizer.is_allowed(ALICE, GET_POD)
    court.grants.role("reader", rule(["get"], ["pods"]))
    court.grants.bind("reader", user("alice"))
    assert not court.authorizer.is_allowed(ALICE, GET_POD)
    court.authorizer.forget()
    assert court.authorizer.is_allowed(ALICE, GET_POD)


@pytest.mark.parametrize(
    ("size", "times"), [(100_000, 300), (1_500, 20_000)], ids=["few-large", "many"]
)
def test_what_is_remembered_has_a_size(court: Court, size: int, times: int) -> None:
    tracemalloc.start()
    try:
        for number in range(times):
            name = f"{number:08}" + "x" * size
            court.authorizer.decide(ALICE, Action(verb="get", resource="pods", name=name))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 10_000_000


def test_what_is_forgotten_takes_no_room(court: Court) -> None:
    for number in range(3):
        court.authorizer.decide(ALICE, Action(verb="get", resource="pods", name=str(number)))
    assert court.authorizer._chars > 0
    court.authorizer.forget()
    assert (court.authorizer._chars, court.authorizer._decided) == (0, {})


def test_users_of_one_name_are_distinguished_by_their_groups(court: Court) -> None:
    court.grants.role("reader", rule(["get"], ["pods"]))
    court.grants.bind("reader", {"kind": "Group", "name": "dev"})
    assert not court.authorizer.is_allowed(ALICE, GET_POD)
    assert court.authorizer.is_allowed(User("alice", groups=("dev",)), GET_POD)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            Action(verb="get", resource="pods", subresource="log", namespace="default", name="s1"),
            'pods "s1" is forbidden: User "alice" cannot get resource "pods/log" in API group "" '
            'in the namespace "default"',
        ),
        (
            Action(verb="list", group="apps", resource="deployments", namespace="default"),
            'deployments.apps is forbidden: User "alice" cannot list resource "deployments" in API '
            'group "apps" in the namespace "default"',
        ),
        (
            Action(verb="get", group="node.k8s.io", resource="runtimeclasses", name="pc"),
            'runtimeclasses.node.k8s.io "pc" is forbidden: User "alice" cannot get resource '
            '"runtimeclasses" in API group "node.k8s.io" at the cluster scope',
        ),
        (Action(verb="get", path="/apis"), 'forbidden: User "alice" cannot get path "/apis"'),
    ],
)
def test_a_refusal_is_worded_for_its_reader(court: Court, action: Action, message: str) -> None:
    with pytest.raises(ForbiddenError) as refusal:
        court.authorizer.check(ALICE, action)
    assert refusal.value.message == message
    details = {"name": action.name, "group": action.group, "kind": action.resource}
    assert refusal.value.details == {key: value for key, value in details.items() if value}
