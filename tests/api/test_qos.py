"""The quality-of-service class, by the resources of a pod's containers or its own."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.qos import qos_class

_EQUAL = {"cpu": "1", "memory": "1Gi"}


def _resources(requests: Any = None, limits: Any = None) -> dict[str, Any]:
    return {"resources": {"requests": requests, "limits": limits}}


_GUARANTEED = _resources(_EQUAL, {"cpu": "1000m", "memory": "1024Mi"})
_NONE: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "BestEffort"),
        ({"containers": [_NONE, {"resources": None}]}, "BestEffort"),
        ({"containers": [_resources({"cpu": "0"}, {"memory": "0"})]}, "BestEffort"),
        ({"containers": [_resources({"example.com/gpu": "1"})]}, "BestEffort"),
        ({"containers": [_GUARANTEED]}, "Guaranteed"),
        ({"containers": [_GUARANTEED, _GUARANTEED], "initContainers": [_GUARANTEED]}, "Guaranteed"),
        ({"containers": [_GUARANTEED], "initContainers": [_NONE]}, "Burstable"),
        ({"containers": [_GUARANTEED, _NONE]}, "Burstable"),
        ({"containers": [_NONE, _GUARANTEED]}, "Burstable"),
        ({"containers": [_resources({"cpu": "1"}, {"cpu": "1"})]}, "Burstable"),
        ({"containers": [_resources({"cpu": "1", "memory": "1"}, _EQUAL)]}, "Burstable"),
        ({"containers": [_resources(None, _EQUAL)]}, "Burstable"),
        ({"containers": [_resources(_EQUAL)]}, "Burstable"),
        ({"containers": [_resources({**_EQUAL, "example.com/gpu": "1"}, _EQUAL)]}, "Guaranteed"),
        # Resources of the pod itself decide alone, if they say anything about cpu or memory.
        ({**_GUARANTEED, "containers": [_NONE]}, "Guaranteed"),
        ({**_resources({"cpu": "1"}), "containers": [_GUARANTEED]}, "Burstable"),
        ({**_resources(None, {"cpu": "1"}), "containers": [_GUARANTEED]}, "Burstable"),
        ({**_resources({"example.com/gpu": "1"}), "containers": [_GUARANTEED]}, "Guaranteed"),
        ({"resources": {}, "containers": [_GUARANTEED]}, "Guaranteed"),
    ],
)
def test_classes(spec: dict[str, Any], expected: str) -> None:
    assert qos_class(spec) == expected
