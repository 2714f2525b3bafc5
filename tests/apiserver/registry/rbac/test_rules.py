"""What a rule allows, and what covers what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.rbac import PolicyRule
from moorage.apiserver.registry.rbac import (
    Action,
    TooManyPermissionsError,
    allows,
    described,
    uncovered,
)
from tests.apiserver.registry.rbac.grants import typed

GET_PODS = typed(verbs=["get"], apiGroups=[""], resources=["pods"])
ALL = typed(verbs=["*"], apiGroups=["*"], resources=["*"])


@pytest.mark.parametrize(
    ("rule", "action", "expected"),
    [
        (GET_PODS, Action(verb="get", resource="pods"), True),
        (GET_PODS, Action(verb="get", resource="pods", name="p", namespace="n"), True),
        (GET_PODS, Action(verb="list", resource="pods"), False),
        (GET_PODS, Action(verb="get", resource="pods", subresource="log"), False),
        (GET_PODS, Action(verb="get", resource="pods", group="metrics.k8s.io"), False),
        (GET_PODS, Action(verb="get", path="/version"), False),
        (ALL, Action(verb="delete", resource="pods", subresource="status"), True),
        (ALL, Action(verb="get", path="/version"), False),
        (typed(verbs=["get"], apiGroups=[""], resources=["pods/log"]),
         Action(verb="get", resource="pods", subresource="log"), True),
        (typed(verbs=["get"], apiGroups=[""], resources=["*/status"]),
         Action(verb="get", resource="nodes", subresource="status"), True),
        (typed(verbs=["get"], apiGroups=[""], resources=["*/status"]),
         Action(verb="get", resource="nodes"), False),
        (typed(verbs=["get"], apiGroups=[""], resources=["services/*"]),
         Action(verb="get", resource="services", subresource="status"), False),
        (typed(verbs=["*"], apiGroups=[""], resources=["secrets"], resourceNames=["a"]),
         Action(verb="get", resource="secrets", name="a"), True),
        (typed(verbs=["*"], apiGroups=[""], resources=["secrets"], resourceNames=["a"]),
         Action(verb="get", resource="secrets", name="b"), False),
        (typed(verbs=["*"], apiGroups=[""], resources=["secrets"], resourceNames=["a"]),
         Action(verb="list", resource="secrets"), False),
        (typed(verbs=["get"], nonResourceURLs=["/healthz"]),
         Action(verb="get", path="/healthz"), True),
        (typed(verbs=["get"], nonResourceURLs=["/healthz"]),
         Action(verb="get", path="/healthz/x"), False),
        (typed(verbs=["get"], nonResourceURLs=["/apis/*"]),
         Action(verb="get", path="/apis/apps"), True),
        (typed(verbs=["get"], nonResourceURLs=["/apis/*"]),
         Action(verb="get", path="/apis"), False),
        (typed(verbs=["get"], nonResourceURLs=["*"]), Action(verb="get", path="/x"), True),
        (typed(verbs=["get"], nonResourceURLs=["*"]), Action(verb="get", resource="pods"), False),
    ],
)  # fmt: skip
def test_a_rule_allows_what_it_names(rule: PolicyRule, action: Action, expected: bool) -> None:
    assert allows(rule, action) is expected


VERBS = st.sampled_from(["get", "list", "delete", "*"])
GROUPS = st.sampled_from(["", "apps", "*"])
RESOURCES = st.sampled_from(["pods", "pods/log", "nodes", "nodes/status", "*/status", "*"])
NAMES = st.sampled_from(["a", "b"])
PATHS = st.sampled_from(["/x", "/x/y", "/x/*", "*"])
RULES = st.one_of(
    st.builds(
        PolicyRule,
        verbs=st.lists(VERBS, min_size=1, max_size=2).map(tuple),
        api_groups=st.lists(GROUPS, min_size=1, max_size=2).map(tuple),
        resources=st.lists(RESOURCES, min_size=1, max_size=2).map(tuple),
        resource_names=st.lists(NAMES, max_size=2).map(tuple),
    ),
    st.builds(
        PolicyRule,
        verbs=st.lists(VERBS, min_size=1, max_size=2).map(tuple),
        non_resource_urls=st.lists(PATHS, min_size=1, max_size=2).map(tuple),
    ),
)
ACTIONS = st.one_of(
    st.builds(
        Action,
        verb=st.sampled_from(["get", "list", "delete", "watch"]),
        group=st.sampled_from(["", "apps", "batch"]),
        resource=st.sampled_from(["pods", "nodes"]),
        subresource=st.sampled_from(["", "log", "status"]),
        name=st.sampled_from(["", "a", "b", "c"]),
    ),
    st.builds(Action, verb=st.sampled_from(["get", "list"]), path=st.sampled_from(["/x", "/x/y"])),
)


@given(st.lists(RULES, max_size=4))
def test_what_one_holds_one_may_grant(held: list[PolicyRule]) -> None:
    assert uncovered(held, held) == []
    everything_at_a_path = typed(verbs=["*"], nonResourceURLs=["*"])
    assert uncovered([ALL, everything_at_a_path], held) == []


@given(st.lists(RULES, max_size=4), st.lists(RULES, max_size=2), ACTIONS)
def test_a_covered_grant_gives_nothing_new(
    held: list[PolicyRule], wanted: list[PolicyRule], action: Action
) -> None:
    if not uncovered(held, wanted) and any(allows(rule, action) for rule in wanted):
        assert any(allows(rule, action) for rule in held)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3))
def test_what_is_missing_and_what_is_held_cover_the_wish(
    held: list[PolicyRule], wanted: list[PolicyRule]
) -> None:
    assert uncovered([*held, *uncovered(held, wanted)], wanted) == []


def test_missing_rules_are_described_with_their_verbs_together() -> None:
    wanted = [
        typed(verbs=["get", "list"], apiGroups=[""], resources=["secrets"]),
        typed(verbs=["get"], apiGroups=["apps"], resources=["deployments"], resourceNames=["d"]),
        typed(verbs=["get"], nonResourceURLs=["/x"]),
    ]
    assert described(uncovered([], wanted)) == (
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["d"], Verbs:["get"]}\n'
        '{NonResourceURLs:["/x"], Verbs:["get"]}'
    )


def test_a_small_rule_that_multiplies_to_billions_is_not_taken_apart() -> None:
    names = tuple(f"n{number}" for number in range(2_000))
    huge = PolicyRule(verbs=names, api_groups=names, resources=names, resource_names=names)
    with pytest.raises(TooManyPermissionsError, match="16000000000000 permissions"):
        uncovered([PolicyRule(verbs=("get",), api_groups=("",), resources=("pods",))], [huge])
    everything = PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",))
    assert uncovered([everything], [huge]) == []
    assert uncovered([huge], [huge]) == []


def test_a_rule_for_names_does_not_cover_the_same_rule_without_names() -> None:
    named = PolicyRule(
        verbs=("get",), api_groups=("",), resources=("pods",), resource_names=("a", "b")
    )
    every = PolicyRule(verbs=("get",), api_groups=("",), resources=("pods",))
    paths = PolicyRule(verbs=("get",), non_resource_urls=("/a", "/b/c"))
    assert uncovered([named], [every]) == [every]
    assert uncovered([every], [named]) == []
    assert uncovered([every], [paths]) != []
    assert uncovered([PolicyRule(verbs=("*",), non_resource_urls=("/a", "/b/*"))], [paths]) == []


def test_many_missing_rules_are_described_in_a_bounded_text() -> None:
    rules = [typed(verbs=["get"], apiGroups=[""], resources=[f"r{n:04}"]) for n in range(600)]
    lines = described(rules).splitlines()
    assert len(lines) == 501
    assert lines[-1] == "and 100 more"
