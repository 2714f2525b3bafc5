"""A new node takes no pods until it is ready."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.admission.node_restriction import TaintNewNodes
from moorage.apiserver.registry.kinds.node import NODE
from tests.apiserver.admission.writes import admit, write

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
NO_EXECUTE = NOT_READY | {"effect": "NoExecute"}
OWN = {"key": "a", "value": "b", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (None, [NOT_READY]),
        ({}, [NOT_READY]),
        ({"taints": [OWN]}, [OWN, NOT_READY]),
        ({"taints": [NO_EXECUTE]}, [NO_EXECUTE, NOT_READY]),
        ({"taints": [NOT_READY | {"value": "x"}]}, [NOT_READY | {"value": "x"}]),
    ],
)
def test_a_new_node_is_tainted_once(
    spec: dict[str, Any] | None, expected: list[dict[str, str]]
) -> None:
    node: dict[str, Any] = {"metadata": {"name": "n1"}}
    if spec is not None:
        node["spec"] = spec
    assert admit(TaintNewNodes(), write(NODE, node))["spec"]["taints"] == expected
