"""IPAddresses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import changed, complaint, update_complaint

KIND = "IPAddress"
NAME, PARENT = "metadata.name", "spec.parentRef"


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, None),
        ({NAME: "255.255.255.255"}, None),
        ({NAME: "fe80::42:1dff:fe84:f9e2"}, None),
        ({NAME: "a"}, f'{NAME}: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7'),
        ({NAME: "010.0.0.1"}, f'{NAME}: Invalid value: "010.0.0.1": must not have leading 0s'),
        ({NAME: "::ffff:10.0.0.1"},
         f'{NAME}: Invalid value: "::ffff:10.0.0.1": must not be an IPv4-mapped IPv6 address'),
        ({NAME: "FE80::1"},
         f'{NAME}: Invalid value: "FE80::1": must be in canonical form ("fe80::1")'),
        ({PARENT: None}, f"{PARENT}: Required value"),
        ({f"{PARENT}.group": "A"}, f'{PARENT}.group: Invalid value: "A": a lowercase RFC 1123'),
        ({f"{PARENT}.resource": ""}, f"{PARENT}.resource: Required value"),
        ({f"{PARENT}.name": ""}, f"{PARENT}.name: Required value"),
        ({f"{PARENT}.name": "a/b"}, f'{PARENT}.name: Invalid value: "a/b": may not contain \'/\''),
        ({f"{PARENT}.namespace": "%"}, f'{PARENT}.namespace: Invalid value: "%": may not contain'),
    ],
)  # fmt: skip
def test_rules(sets: dict[str, Any], says: str | None) -> None:
    refusal = complaint(KIND, changed(KIND, sets))
    assert refusal is None if says is None else f" is invalid: {says}" in str(refusal)


def test_the_parent_is_immutable() -> None:
    new = changed(KIND, {f"{PARENT}.name": "other"})
    assert update_complaint(KIND, new, changed(KIND)) == (
        f'{PARENT}: Invalid value: {{"Group":"","Resource":"services","Namespace":"default",'
        '"Name":"other"}: field is immutable'
    )
    new = changed(KIND, {"metadata.labels": {"a": "b"}})
    assert update_complaint(KIND, new, changed(KIND)) is None


def test_row() -> None:
    assert columns(KIND) == "Name ParentRef |"
    assert row(KIND, {}) == ["x", "<none>"]
    parent = {"resource": "services", "namespace": "n", "name": "s"}
    assert row(KIND, {"spec": {"parentRef": parent}}) == ["x", "services/n/s"]
    parent = {"group": "g.io", "resource": "Things", "name": "t"}
    assert row(KIND, {"spec": {"parentRef": parent}}) == ["x", "things.g.io/t"]
