"""Validation of the bodies of subresources."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.kinds.unstored import validate_binding, validate_scale


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({"kind": "Node", "name": "n"}, []),
        ({"name": "n"}, []),
        ({"kind": "Pod", "name": "n"},
         ['target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"']),
        ({}, ["target.name: Required value"]),
    ],
)  # fmt: skip
def test_a_binding_is_to_a_node(target: dict[str, str], says: list[str]) -> None:
    assert [str(error) for error in validate_binding({"target": target})] == says


def test_a_scale_is_not_negative() -> None:
    assert validate_scale({"spec": {"replicas": 0}}) == []
    assert [str(error) for error in validate_scale({"spec": {"replicas": -1}})] == [
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    ]
