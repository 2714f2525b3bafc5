"""ReplicaSets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import WORKLOAD, columns, rows
from tests.apiserver.registry.rules import changed, update_complaint, updates

test_update = updates("ReplicaSet", cases=[
    ({}, {"spec.selector.matchLabels": {"x": "y"},
                        "spec.template.metadata.labels": {"x": "y"}},
     'spec.selector: Invalid value: {"matchLabels":{"x":"y"}}: field is immutable'),
])  # fmt: skip


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"replicas": 3, "fullyLabeledReplicas": 3}, None),
        ({"replicas": 0, "availableReplicas": 1},
         "status.availableReplicas: Invalid value: 1: cannot be greater than status.replicas"),
    ],
)  # fmt: skip
def test_status(status: dict[str, Any], says: str | None) -> None:
    new = changed("ReplicaSet", {"status": status})
    assert update_complaint("ReplicaSet", new, changed("ReplicaSet"), "status") == says


test_row = rows("ReplicaSet", cases=[
    ({"spec": WORKLOAD, "status": {"replicas": 3, "readyReplicas": 2}},
     ["x", 3, 3, 2, "90s", "a,b", "i:1,j", "app=w"]),
])  # fmt: skip


def test_columns() -> None:
    assert columns("ReplicaSet") == "Name Desired Current Ready Age | Containers Images Selector"
