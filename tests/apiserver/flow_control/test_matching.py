"""Which requests a flow schema matches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.flow_control import PolicyRulesWithSubjects
from moorage.apiserver.flow_control.classifier import distinguisher_of, matches
from moorage.apiserver.flow_control.configuration import SchemaConfiguration
from moorage.apiserver.registry.request import User
from tests.apiserver.flow_control.requests import ALICE, ANONYMOUS, NODE, account, target

ALL = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
       "clusterScope": True}  # fmt: skip
PODS = target("/api/v1/namespaces/default/pods")
ANYONE = {"kind": "Group", "group": {"name": "*"}}


def _schema(*rules: dict[str, Any], distinguisher: str = "") -> SchemaConfiguration:
    return SchemaConfiguration(
        name="x", level="x", precedence=2, distinguisher=distinguisher,
        rules=msgspec.convert(rules, tuple[PolicyRulesWithSubjects, ...]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "user", "expected"),
    [
        ({"kind": "User", "user": {"name": "alice"}}, ALICE, True),
        ({"kind": "User", "user": {"name": "*"}}, ALICE, True),
        ({"kind": "User", "user": {"name": "bob"}}, ALICE, False),
        ({"kind": "User"}, ALICE, False),
        ({"kind": "Group", "group": {"name": "dev"}}, ALICE, True),
        ({"kind": "Group", "group": {"name": "*"}}, ANONYMOUS, True),
        ({"kind": "Group", "group": {"name": "alice"}}, ALICE, False),
        ({"kind": "Group"}, ALICE, False),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "b"}},
         account("a", "b"), True),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "*"}},
         account("a", "c"), True),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "*"}},
         account("ab", "c"), False),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "c"}},
         account("a", "b"), False),
        ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "*"}},
         User("a:b"), False),
        ({"kind": "ServiceAccount"}, account("a", "b"), False),
        ({"kind": "Robot"}, ALICE, False),
    ],
)  # fmt: skip
def test_subjects(subject: dict[str, Any], user: User, expected: bool) -> None:
    schema = _schema({"subjects": [subject], "resourceRules": [ALL]})
    assert matches(schema, user, "get", PODS) is expected


@pytest.mark.parametrize(
    ("rule", "verb", "path", "expected"),
    [
        ({}, "get", "/api/v1/namespaces/default/pods/x", True),
        ({}, "get", "/apis/apps/v1/deployments", True),
        ({"verbs": ["get", "list"]}, "list", "/api/v1/pods", True),
        ({"verbs": ["get", "list"]}, "watch", "/api/v1/pods", False),
        ({"apiGroups": [""]}, "get", "/api/v1/pods", True),
        ({"apiGroups": ["apps"]}, "get", "/api/v1/pods", False),
        ({"resources": ["pods"]}, "get", "/api/v1/namespaces/a/pods/x", True),
        ({"resources": ["pods"]}, "get", "/api/v1/namespaces/a/pods/x/status", False),
        ({"resources": ["pods/status"]}, "get", "/api/v1/namespaces/a/pods/x/status", True),
        ({"resources": ["pods/*"]}, "get", "/api/v1/namespaces/a/pods/x/status", False),
        ({"namespaces": ["a", "b"]}, "get", "/api/v1/namespaces/a/pods/x", True),
        ({"namespaces": ["a", "b"]}, "get", "/api/v1/namespaces/c/pods/x", False),
        ({"namespaces": ["a"]}, "list", "/api/v1/pods", True),
        ({"clusterScope": False}, "list", "/api/v1/pods", False),
        ({"clusterScope": False}, "list", "/api/v1/namespaces/a/pods", True),
        ({"namespaces": []}, "list", "/api/v1/namespaces/a/pods", False),
        # `*` stands for all only where it is alone.
        ({"verbs": ["*", "list"]}, "get", "/api/v1/pods", False),
        ({}, "get", "/version", False),
    ],
)
def test_resource_rules(rule: dict[str, Any], verb: str, path: str, expected: bool) -> None:
    schema = _schema({"subjects": [ANYONE], "resourceRules": [{**ALL, **rule}]})
    assert matches(schema, ALICE, verb, target(path)) is expected


@pytest.mark.parametrize(
    ("urls", "path", "expected"),
    [
        (["*"], "/version", True),
        (["/version"], "/version", True),
        (["/version"], "/version/", True),
        (["/version"], "/versions", False),
        (["/healthz"], "/healthz/ping", True),
        (["/healthz/*"], "/healthz/ping", True),
        (["/healthz/*"], "/healthz", False),
        (["/readyz", "/livez"], "/livez", True),
        (["/"], "/anything", True),
        (["*"], "/api/v1/pods", False),
    ],
)
def test_url_rules(urls: list[str], path: str, expected: bool) -> None:
    rule = {"verbs": ["get"], "nonResourceURLs": urls}
    schema = _schema({"subjects": [ANYONE], "nonResourceRules": [rule]})
    assert matches(schema, ALICE, "get", target(path)) is expected
    assert not matches(schema, ALICE, "post", target(path))


def test_subject_and_rule_must_be_of_the_same_entry() -> None:
    schema = _schema(
        {"subjects": [ANYONE], "resourceRules": [{**ALL, "resources": ["nodes"]}]},
        {"subjects": [{"kind": "User", "user": {"name": NODE.name}}], "resourceRules": [ALL]},
    )
    assert matches(schema, NODE, "get", PODS)
    assert not matches(schema, ALICE, "get", PODS)
    assert matches(schema, ALICE, "get", target("/api/v1/nodes"))


@pytest.mark.parametrize(
    ("distinguisher", "expected"), [("ByUser", "alice"), ("ByNamespace", "default"), ("", "")]
)
def test_what_distinguishes_flows(distinguisher: str, expected: str) -> None:
    assert distinguisher_of(_schema(distinguisher=distinguisher), ALICE, PODS) == expected


_NAMES = st.sampled_from(["a", "b", "*", "system:serviceaccount:a:b", "system:serviceaccount:"])


@given(_NAMES, st.lists(_NAMES).map(tuple), _NAMES, st.text(max_size=8))
def test_a_schema_for_all_matches_all_and_one_without_rules_none(
    name: str, groups: tuple[str, ...], verb: str, path: str
) -> None:
    user, url = User(name, groups=groups), {"verbs": ["*"], "nonResourceURLs": ["*"]}
    everything = {"subjects": [ANYONE], "resourceRules": [ALL], "nonResourceRules": [url]}
    for about in (PODS, target(f"/{path}")):
        assert matches(_schema(everything), user, verb, about)
        assert not matches(_schema(), user, verb, about)
        assert not matches(_schema({"subjects": [ANYONE]}), user, verb, about)
