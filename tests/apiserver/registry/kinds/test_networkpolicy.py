"""NetworkPolicies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    creations,
    decoded,
    update_complaint,
)

KIND = "NetworkPolicy"
PORT = "spec.ingress[0].ports[0]"
PEER = "spec.ingress[0].from[0]"
BLOCK = "spec.egress[0].to[0].ipBlock"
WRONG_VALUE = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}


def test_defaults() -> None:
    spec = decoded(KINDS[KIND], changed(KIND))["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"][0]["ports"][0]["protocol"] == "TCP"
    assert decoded(KINDS[KIND], changed(KIND, {}, "spec.egress"))["spec"]["policyTypes"] == [
        "Ingress"
    ]
    given = decoded(KINDS[KIND], changed(KIND, {"spec.policyTypes": ["Egress"]}))
    assert given["spec"]["policyTypes"] == ["Egress"]


test_rules = creations(KIND, cases=[
    ({}, None),
    ({"spec": {}}, None),
    ({"spec.podSelector": WRONG_VALUE},
     'spec.podSelector.matchExpressions[0].values[0]: Invalid value: "-": '),
    ({f"{PORT}.protocol": "ICMP"},
     f'{PORT}.protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"'),
    ({f"{PORT}.port": 0},
     f"{PORT}.port: Invalid value: 0: must be between 1 and 65535, inclusive"),
    ({f"{PORT}.port": "http"}, None),
    ({f"{PORT}.port": "80"},
     f'{PORT}.port: Invalid value: "80": must contain at least one letter (a-z)'),
    ({f"{PORT}.endPort": 80}, None),
    ({f"{PORT}.endPort": 79},
     f"{PORT}.endPort: Invalid value: 79: must be greater than or equal to `port`"),
    ({f"{PORT}.endPort": 65536},
     f"{PORT}.endPort: Invalid value: 65536: must be between 1 and 65535, inclusive"),
    ({f"{PORT}.port": "http", f"{PORT}.endPort": 80},
     f"{PORT}.endPort: Invalid value: 80: may not be specified when `port` is non-numeric"),
    ({PORT: {"endPort": 80}},
     f"{PORT}.endPort: Invalid value: 80: may not be specified when `port` is not specified"),
    ({PEER: {}}, f"{PEER}: Required value: must specify a peer"),
    ({f"{PEER}.namespaceSelector": {}}, None),
    ({f"{PEER}.namespaceSelector": WRONG_VALUE},
     f'{PEER}.namespaceSelector.matchExpressions[0].values[0]: Invalid value: "-": '),
    ({f"{PEER}.ipBlock": {"cidr": "10.0.0.0/8"}},
     f"{PEER}: Forbidden: may not specify both ipBlock and another peer"),
    ({f"{BLOCK}.cidr": ""}, f"{BLOCK}.cidr: Required value"),
    ({f"{BLOCK}.cidr": "10.0.0.1/8"},
     f'{BLOCK}.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix '
     "length"),
    ({f"{BLOCK}.except[0]": "11.0.0.0/16"},
     f'{BLOCK}.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`'),
    ({f"{BLOCK}.except[0]": "10.0.0.0/8"},
     f'{BLOCK}.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`'),
    ({f"{BLOCK}.except[0]": "fd00::/64"},
     f'{BLOCK}.except[0]: Invalid value: "fd00::/64": must be a strict subset of `cidr`'),
    ({"spec.policyTypes": ["Ingress", "X"]},
     'spec.policyTypes[1]: Unsupported value: "X": supported values: "Ingress", "Egress"'),
    ({"spec.policyTypes": ["Ingress", "Egress", "X"]},
     'spec.policyTypes: Invalid value: ["Ingress","Egress","X"]: may not specify more than '
     "two policyTypes"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "other"),
    [
        ({f"{BLOCK}.cidr": "10.0.0.1/8"}, {f"{PEER}": {"ipBlock": {"cidr": "10.0.0.1/8"}}}),
        ({"spec.podSelector": WRONG_VALUE}, {f"{PEER}.podSelector": WRONG_VALUE}),
    ],
)
def test_what_was_wrong_may_stay_so(wrong: dict[str, Any], other: dict[str, Any]) -> None:
    assert update_complaint(KIND, changed(KIND, other), changed(KIND, wrong)) is None
    assert update_complaint(KIND, changed(KIND, other), changed(KIND)) is not None


def test_ambiguous_values_bring_warnings() -> None:
    sets = {f"{BLOCK}.cidr": "FD00::/8", f"{BLOCK}.except[0]": "10.1.2.3/16"}
    policy = decoded(KINDS[KIND], changed(KIND, sets))
    assert KINDS[KIND].strategy.warn(policy, policy) == [
        f'{BLOCK}.cidr: IPv6 CIDR value "FD00::/8" should be in RFC 5952 canonical format '
        '("fd00::/8")',
        f'{BLOCK}.except[0]: CIDR value "10.1.2.3/16" is ambiguous in this context (should be '
        '"10.1.0.0/16" or "10.1.2.3/32"?)',
    ]


def test_row() -> None:
    assert columns(KIND) == "Name Pod-Selector Age |"
    assert row(KIND, {}) == ["x", "<none>", "90s"]
    selector = {"matchLabels": {"a": "b"}, **WRONG_VALUE}
    assert row(KIND, {"spec": {"podSelector": selector}}) == ["x", "a=b,a in (-)", "90s"]
    unknown = {"matchExpressions": [{"key": "a", "operator": "Like"}]}
    assert row(KIND, {"spec": {"podSelector": unknown}}) == ["x", "<error>", "90s"]
