"""IngressClasses."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    creations,
    decoded,
    update_complaint,
)

KIND = "IngressClass"
CONTROLLER, PARAMETERS = "spec.controller", "spec.parameters"


def test_parameters_are_the_clusters_by_default() -> None:
    assert decoded(KINDS[KIND], changed(KIND))["spec"]["parameters"]["scope"] == "Cluster"
    without = decoded(KINDS[KIND], changed(KIND, {}, PARAMETERS))
    assert "parameters" not in without["spec"]


test_rules = creations(KIND, cases=[
    ({}, None),
    ({CONTROLLER: ""}, f"{CONTROLLER}: Required value"),
    ({CONTROLLER: "a/" + "b" * 248}, None),
    ({CONTROLLER: "a/" + "b" * 249},
     f"{CONTROLLER}: Too long: may not be more than 250 bytes"),
    ({CONTROLLER: "proxy"},
     f'{CONTROLLER}: Invalid value: "proxy": must be a domain-prefixed path (such as '
     '"acme.io/foo")'),
    ({CONTROLLER: "a/b/c"}, None),
    ({CONTROLLER: "A/b"},
     f'{CONTROLLER}: Invalid value: "A": a lowercase RFC 1123 subdomain must'),
    ({CONTROLLER: "a/b c"},
     f'{CONTROLLER}: Invalid value: "b c": Invalid path (regex used for validation is '
     r"'[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"),
    ({f"{PARAMETERS}.kind": ""}, f"{PARAMETERS}.kind: Required value"),
    ({f"{PARAMETERS}.name": "a%b"},
     f'{PARAMETERS}.name: Invalid value: "a%b": may not contain \'%\''),
    ({f"{PARAMETERS}.scope": "Node"},
     f'{PARAMETERS}.scope: Unsupported value: "Node": supported values: "Cluster", '
     '"Namespace"'),
    ({f"{PARAMETERS}.namespace": "n"},
     f"{PARAMETERS}.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"),
    ({f"{PARAMETERS}.scope": "Namespace"},
     f"{PARAMETERS}.namespace: Required value: `parameters.scope` is set to 'Namespace'"),
    ({f"{PARAMETERS}.scope": "Namespace", f"{PARAMETERS}.namespace": "n"}, None),
    ({f"{PARAMETERS}.scope": "Namespace", f"{PARAMETERS}.namespace": "a.b"},
     f'{PARAMETERS}.namespace: Invalid value: "a.b": must not contain dots'),
])  # fmt: skip


def test_the_controller_is_immutable() -> None:
    new = changed(KIND, {CONTROLLER: "b.example.com/proxy"}, PARAMETERS)
    says = update_complaint(KIND, new, changed(KIND))
    assert says == f'{CONTROLLER}: Invalid value: "b.example.com/proxy": field is immutable'
    assert update_complaint(KIND, changed(KIND, {}, PARAMETERS), changed(KIND)) is None
    says = update_complaint(KIND, changed(KIND, {}, CONTROLLER), changed(KIND))
    assert says is not None
    assert f'{CONTROLLER}: Invalid value: "": field is immutable' in says


def test_row() -> None:
    assert columns(KIND) == "Name Controller Parameters Age |"
    assert row(KIND, {}) == ["x", "", "<none>", "90s"]
    parameters = {"apiGroup": "g.io", "kind": "K", "name": "n"}
    spec = {"controller": "a/b", "parameters": parameters}
    assert row(KIND, {"spec": spec}) == ["x", "a/b", "K.g.io/n", "90s"]
    default = {"ingressclass.kubernetes.io/is-default-class": "true"}
    cells = row(KIND, {"metadata": {"name": "x", "annotations": default}})
    assert cells[0] == "x (default)"
