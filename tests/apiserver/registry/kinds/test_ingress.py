"""Ingresses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    complaint,
    creations,
    decoded,
    update_complaint,
)

KIND = "Ingress"
PATH = "spec.rules[0].http.paths[0]"
HOST = "spec.rules[0].host"
OLD_CLASS = "kubernetes.io/ingress.class"
LABEL = "a lowercase RFC 1123 label must consist of"
SUBDOMAIN = "a lowercase RFC 1123 subdomain must consist of"
WILDCARD = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which "
    "must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric "
    "character (e.g. '*.example.com', regex used for validation is "
    r"'\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


test_rules = creations(KIND, cases=[
    ({}, None),
    ({HOST: ""}, None),
    ({HOST: "*.example.com"}, None),
    ({HOST: "10.0.0.1"},
     f'{HOST}: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'),
    ({HOST: "A"}, f'{HOST}: Invalid value: "A": {SUBDOMAIN}'),
    ({HOST: "*"}, f'{HOST}: Invalid value: "*": {WILDCARD}'),
    ({HOST: "a.*.b"}, f'{HOST}: Invalid value: "a.*.b": {WILDCARD}'),
    ({"spec.rules[0].http.paths": []}, "spec.rules[0].http.paths: Required value"),
    ({f"{PATH}.pathType": "Regex"},
     f'{PATH}.pathType: Unsupported value: "Regex": supported values: "Exact", '
     '"ImplementationSpecific", "Prefix"'),
    ({f"{PATH}.path": ""}, f'{PATH}.path: Invalid value: "": must be an absolute path'),
    ({f"{PATH}.path": "a"}, f'{PATH}.path: Invalid value: "a": must be an absolute path'),
    ({f"{PATH}.path": "/a//b"},
     f'{PATH}.path: Invalid value: "/a//b": must not contain \'//\''),
    ({f"{PATH}.path": "/%2F"},
     f'{PATH}.path: Invalid value: "/%2F": must not contain \'%2F\''),
    ({f"{PATH}.path": "/a/.."},
     f'{PATH}.path: Invalid value: "/a/..": cannot end with \'/..\''),
    ({f"{PATH}.path": "", f"{PATH}.pathType": "ImplementationSpecific"}, None),
    ({f"{PATH}.path": "/a//b", f"{PATH}.pathType": "ImplementationSpecific"}, None),
    ({f"{PATH}.path": "a", f"{PATH}.pathType": "ImplementationSpecific"},
     f'{PATH}.path: Invalid value: "a": must be an absolute path'),
    ({f"{PATH}.backend": {}},
     f'{PATH}.backend: Invalid value: "": resource or service backend is required'),
    ({f"{PATH}.backend.resource": {"kind": "K", "name": "n"}},
     f'{PATH}.backend: Invalid value: "": cannot set both resource and service backends'),
    ({f"{PATH}.backend": {"resource": {"kind": "K", "name": "n"}}}, None),
    ({f"{PATH}.backend": {"resource": {"kind": "K/", "name": "n", "apiGroup": "g"}}},
     f'{PATH}.backend.resource.kind: Invalid value: "K/": may not contain \'/\''),
    ({f"{PATH}.backend": {"resource": {"kind": "K", "apiGroup": "g"}}},
     f"{PATH}.backend.resource.name: Required value"),
    ({f"{PATH}.backend": {"resource": {"kind": "K", "name": "n", "apiGroup": "G"}}},
     f'{PATH}.backend.resource.apiGroup: Invalid value: "G": {SUBDOMAIN}'),
    ({f"{PATH}.backend.service.name": ""}, f"{PATH}.backend.service.name: Required value"),
    ({f"{PATH}.backend.service.name": "1-digit"}, None),
    ({f"{PATH}.backend.service.name": "S"},
     f'{PATH}.backend.service.name: Invalid value: "S": {LABEL}'),
    ({f"{PATH}.backend.service.port": {}},
     f"{PATH}.backend: Required value: port name or number is required"),
    ({f"{PATH}.backend.service.port": {"name": "http"}}, None),
    ({f"{PATH}.backend.service.port": {"name": "a--b"}},
     f'{PATH}.backend.service.port.name: Invalid value: "a--b": must not contain consecutive '
     "hyphens"),
    ({f"{PATH}.backend.service.port.name": "http"},
     f'{PATH}.backend: Invalid value: "": cannot set both port name & port number'),
    ({f"{PATH}.backend.service.port.number": 65536},
     f"{PATH}.backend.service.port.number: Invalid value: 65536: must be between 1 and "
     "65535, inclusive"),
    ({"spec.tls[0].hosts[0]": "*.example.com"}, None),
    ({"spec.tls[0].hosts[0]": "**"}, f'spec.tls[0].hosts[0]: Invalid value: "**": {WILDCARD}'),
    ({"spec.tls[0].secretName": "S"},
     f'spec.tls[0].secretName: Invalid value: "S": {SUBDOMAIN}'),
    ({"spec.tls[0].secretName": ""}, None),
    ({"spec.ingressClassName": "C"},
     f'spec.ingressClassName: Invalid value: "C": {SUBDOMAIN}'),
    ({"metadata.annotations": {OLD_CLASS: "a"}, "spec.ingressClassName": "a"}, None),
    ({"metadata.annotations": {OLD_CLASS: "a"}, "spec.ingressClassName": "b"},
     f'annotations.{OLD_CLASS}: Invalid value: "a": must match `ingressClassName` when both '
     "are specified"),
])  # fmt: skip


def test_rules_or_a_default_backend_are_needed() -> None:
    assert str(complaint(KIND, changed(KIND, {}, "spec.rules"))).endswith(
        "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"
    )
    default = {"service": {"name": "s", "port": {"number": 1}}}
    assert complaint(KIND, changed(KIND, {"spec.defaultBackend": default}, "spec.rules")) is None
    wrong = changed(KIND, {"spec.defaultBackend": {}}, "spec.rules")
    assert "spec.defaultBackend: Invalid value" in str(complaint(KIND, wrong))
    assert "pathType must be specified" in str(
        complaint(KIND, changed(KIND, {}, f"{PATH}.pathType"))
    )


@pytest.mark.parametrize(
    ("wrong", "other"),
    [
        ({"spec.tls[0].secretName": "S"}, {"spec.tls[0].secretName": "T"}),
        ({HOST: "*.example.com", f"{PATH}.path": "a"}, {HOST: "*.a", f"{PATH}.path": "b"}),
    ],
)
def test_what_was_wrong_may_stay_so(wrong: dict[str, Any], other: dict[str, Any]) -> None:
    assert update_complaint(KIND, changed(KIND, other), changed(KIND, wrong)) is None
    assert update_complaint(KIND, changed(KIND, other), changed(KIND)) is not None


def test_an_update_may_have_a_class_beside_another_in_the_annotation() -> None:
    sets = {"metadata.annotations": {OLD_CLASS: "a"}, "spec.ingressClassName": "b"}
    assert update_complaint(KIND, changed(KIND, sets), changed(KIND)) is None


def test_the_annotation_alone_brings_a_warning() -> None:
    warn = KINDS[KIND].strategy.warn
    old = decoded(KINDS[KIND], changed(KIND, {"metadata.annotations": {OLD_CLASS: "a"}}))
    assert warn(old, None) == [
        f"annotation \"{OLD_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
    ]
    assert warn(old, old) == []
    both = {"metadata.annotations": {OLD_CLASS: "a"}, "spec.ingressClassName": "a"}
    assert warn(decoded(KINDS[KIND], changed(KIND, both)), None) == []


@pytest.mark.parametrize(
    ("point", "says"),
    [
        ({"ip": "10.0.0.1", "hostname": "a.b"}, None),
        ({"ip": "010.0.0.1"}, 'ip: Invalid value: "010.0.0.1": must not have leading 0s'),
        ({"hostname": "10.0.0.1"},
         'hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address'),
        ({"hostname": "A"}, f'hostname: Invalid value: "A": {SUBDOMAIN}'),
    ],
)  # fmt: skip
def test_status_rules(point: dict[str, Any], says: str | None) -> None:
    new = {**changed(KIND), "status": {"loadBalancer": {"ingress": [point]}}}
    refusal = update_complaint(KIND, new, changed(KIND), "status")
    if says is None:
        assert refusal is None
    else:
        assert str(refusal).startswith(f"status.loadBalancer.ingress[0].{says}")
    if "ip" in point:
        assert update_complaint(KIND, new, new, "status") is None


def test_row() -> None:
    assert columns(KIND) == "Name Class Hosts Address Ports Age |"
    assert row(KIND, {}) == ["x", "<none>", "*", "", "80", "90s"]
    points = [{"hostname": "h"}, {"ip": "10.0.0.2"}, {"ip": "10.0.0.1", "hostname": "g"}]
    shown = row(
        KIND,
        {
            "spec": {
                "ingressClassName": "c",
                "tls": [{}],
                "rules": [{"host": "a"}, {"host": "b"}, {}, {"host": "c"}],
            },
            "status": {"loadBalancer": {"ingress": points}},
        },
    )
    assert shown == ["x", "c", "a,b,c", "10.0.0.1,10.0.0.2,h", "80, 443", "90s"]
    rules = [{"host": "a"}, {"host": "b"}, {"host": "c"}, {}, {"host": "d"}]
    assert row(KIND, {"spec": {"rules": rules}})[2] == "a,b,c + 2 more..."
