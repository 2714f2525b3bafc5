"""DeviceClasses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, complaint, decoded, update_complaint

KIND = "DeviceClass"
NAME = "spec.extendedResourceName"
OPAQUE = {"driver": "d.example.com", "parameters": {"a": "b"}}
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"spec.selectors": [{"cel": {"expression": "true"}}], "spec.config": [{"opaque": OPAQUE}],
          NAME: "example.com/gpu"}, None),
        ({"metadata.name": "A"}, f'metadata.name: Invalid value: "A": {SUBDOMAIN}'),
        ({"spec.selectors": [{}]}, "spec.selectors[0].cel: Required value"),
        ({"spec.selectors": [{"cel": {"expression": "x"}}] * 33},
         "spec.selectors: Too many: 33: must have at most 32 items"),
        ({"spec.selectors": [{"cel": {"expression": "x" * 10241}}]},
         "spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"),
        ({"spec.config": [{"opaque": OPAQUE}] * 33},
         "spec.config: Too many: 33: must have at most 32 items"),
        ({"spec.config": [{}]}, "spec.config[0].opaque: Required value"),
        ({"spec.config": [{"opaque": {**OPAQUE, "driver": ""}}]},
         "spec.config[0].opaque.driver: Required value"),
        ({NAME: "gpu"},
         f'{NAME}: Invalid value: "gpu": a name must be a domain-prefixed path, such as '
         "'example.com/my-prop'"),
        ({NAME: "a.kubernetes.io/gpu"},
         f'{NAME}: Invalid value: "a.kubernetes.io/gpu": must not have "kubernetes.io/" domain'),
        ({NAME: "requests.a/gpu"},
         f'{NAME}: Invalid value: "requests.a/gpu": must not have "requests." prefix'),
        ({NAME: "A/gpu"}, f'{NAME}: Invalid value: "A/gpu": prefix part {SUBDOMAIN}'),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str | None) -> None:
    error = complaint(KIND, changed(KIND, sets))
    assert (error and error.partition(" is invalid: ")[2]) == says
    if "metadata.name" not in sets:
        assert update_complaint(KIND, changed(KIND, sets), changed(KIND)) == says


def test_long_parameters_that_are_stored_stay_legal() -> None:
    opaque = {"driver": "d", "parameters": {"a": "x" * 10240}}
    new = changed(KIND, {"spec.config": [{"opaque": opaque}]})
    says = "spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"
    assert update_complaint(KIND, new, changed(KIND)) == says
    assert update_complaint(KIND, new, new) is None


def test_empty_parameters_are_kept() -> None:
    config = [{"opaque": {"driver": "d", "parameters": {}}}]
    assert decoded(KINDS[KIND], changed(KIND, {"spec.config": config}))["spec"]["config"] == config


def test_table() -> None:
    assert columns(KIND) == "Name Age |"
    assert row(KIND, {}) == ["x", "90s"]
