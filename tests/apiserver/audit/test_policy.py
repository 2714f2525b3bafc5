"""Audit policies: which rule matches a request, and which files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.apiserver.audit.policy import Level, PolicyError, load_policy, parse_policy
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User

ALICE = User(name="alice", groups=("dev", "system:authenticated"))
GET_POD = Action(verb="get", resource="pods", namespace="n", name="p")
POD_LOG = Action(verb="get", resource="pods", subresource="log", namespace="n", name="p")
SCALE = Action(verb="update", group="apps", resource="deployments", subresource="scale")
NODE = Action(verb="list", resource="nodes")
HEALTH = Action(verb="get", path="/healthz/ping")


def document(*rules: Any, **fields: Any) -> bytes:
    whole = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **fields}
    return msgspec.json.encode(whole)


@pytest.mark.parametrize(
    ("rule", "matching"),
    [
        ({}, (GET_POD, POD_LOG, SCALE, NODE, HEALTH)),
        ({"users": ["alice"]}, (GET_POD, POD_LOG, SCALE, NODE, HEALTH)),
        ({"users": ["bob"]}, ()),
        ({"userGroups": ["ops", "dev"]}, (GET_POD, POD_LOG, SCALE, NODE, HEALTH)),
        ({"userGroups": ["ops"]}, ()),
        ({"verbs": ["get"]}, (GET_POD, POD_LOG, HEALTH)),
        ({"namespaces": ["n"]}, (GET_POD, POD_LOG)),
        ({"namespaces": [""]}, (SCALE, NODE)),
        ({"resources": [{"group": ""}]}, (GET_POD, POD_LOG, NODE)),
        ({"resources": [{"group": "*"}]}, (GET_POD, POD_LOG, SCALE, NODE)),
        ({"resources": [{"resources": ["pods"]}]}, (GET_POD,)),
        ({"resources": [{"resources": ["pods/log"]}]}, (POD_LOG,)),
        ({"resources": [{"resources": ["pods/*"]}]}, (GET_POD, POD_LOG)),
        ({"resources": [{"resources": ["*/log"]}]}, (POD_LOG,)),
        ({"resources": [{"group": "apps", "resources": ["*/scale"]}]}, (SCALE,)),
        ({"resources": [{"resources": ["*"]}]}, (GET_POD, POD_LOG, NODE)),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["p"]}]}, (GET_POD,)),
        ({"resources": [{"resources": ["pods"], "resourceNames": ["q"]}]}, ()),
        ({"nonResourceURLs": ["*"]}, (HEALTH,)),
        ({"nonResourceURLs": ["/healthz*"]}, (HEALTH,)),
        ({"nonResourceURLs": ["/healthz"]}, ()),
    ],
)
def test_a_rule_matches(rule: dict[str, Any], matching: tuple[Action, ...]) -> None:
    policy = parse_policy(document({"level": "Metadata", **rule}))
    for action in (GET_POD, POD_LOG, SCALE, NODE, HEALTH):
        expected = Level.metadata if action in matching else Level.none
        assert policy.recorded(ALICE, action).level is expected, action


def test_the_first_rule_that_matches_decides() -> None:
    policy = parse_policy(
        document({"level": "None", "verbs": ["get"]}, {"level": "RequestResponse"})
    )
    assert policy.recorded(ALICE, GET_POD).level is Level.none
    assert policy.recorded(ALICE, NODE).level is Level.request_response


def test_a_request_without_user_matches_no_rule_about_users() -> None:
    policy = parse_policy(document({"level": "Request", "users": [""]}, {"level": "Metadata"}))
    assert policy.recorded(None, GET_POD).level is Level.metadata


def test_stages_are_omitted_by_the_policy_and_by_the_rule() -> None:
    rules = (
        {
            "level": "Metadata",
            "omitStages": ["Panic"],
            "omitManagedFields": False,
            "verbs": ["get"],
        },
        {"level": "Metadata"},
    )
    policy = parse_policy(document(*rules, omitStages=["RequestReceived"], omitManagedFields=True))
    first, second = policy.recorded(ALICE, GET_POD), policy.recorded(ALICE, NODE)
    assert first.omitted_stages == {"RequestReceived", "Panic"}
    assert not first.omits_managed_fields
    assert second.omitted_stages == {"RequestReceived"}
    assert second.omits_managed_fields


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"rules: [", "is not a policy"),
        (b"- a", "is not a policy"),
        (b"\xff", "is not a policy"),
        (b"[" * 5000, "is not a policy"),
        (b"apiVersion: audit.k8s.io/v1beta1\nkind: Policy", "is of audit.k8s.io/v1beta1"),
        (b"{}", "is of no apiVersion, kind missing"),
        (document(), "loaded illegal policy with 0 rules"),
        (document({"levle": "None"}), "unknown field `levle`"),
        (document({}), "rules[0].level: Required value"),
        (
            document({"level": "All"}),
            'rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", '
            '"Request", "RequestResponse"',
        ),
        (
            document({"level": "None", "nonResourceURLs": ["x", "/a*b"]}),
            'rules[0].nonResourceURLs[0]: Invalid value: "x": non-resource URL rules must begin '
            "with a '/' character; rules[0].nonResourceURLs[1]: Invalid value: \"/a*b\": "
            "non-resource URL wildcards '*' must be the final character of the rule",
        ),
        (
            document({"level": "None", "nonResourceURLs": ["/x"], "namespaces": ["n"]}),
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            document({"level": "None", "resources": [{"group": "apps/v1"}]}),
            'rules[0].resources.group: Invalid value: "apps/v1"',
        ),
        (
            document({"level": "None", "resources": [{"resourceNames": ["a"]}]}),
            "using resourceNames requires at least one resource",
        ),
        (
            document({"level": "None"}, omitStages=["Begin"]),
            'omitStages[0]: Invalid value: "Begin": allowed stages are RequestReceived,'
            "ResponseStarted,ResponseComplete,Panic",
        ),
    ],
)
def test_a_policy_is_refused_with_its_faults(text: bytes, fault: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_policy(text)
    assert fault in str(raised.value)


def test_a_policy_file_is_named_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    with pytest.raises(PolicyError, match=f"audit policy {path} cannot be read: No such file"):
        load_policy(path)
    path.write_text("kind: Policy")
    with pytest.raises(PolicyError, match=f"audit policy {path}: is of no apiVersion"):
        load_policy(path)
