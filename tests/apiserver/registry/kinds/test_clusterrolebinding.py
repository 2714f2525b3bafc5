"""ClusterRoleBindings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.rules import changed, complaint


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"roleRef.kind": "Role"},
         'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'),
        ({"subjects": [{"kind": "ServiceAccount", "name": "s"}]},
         "subjects[0].namespace: Required value"),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str) -> None:
    error = complaint("ClusterRoleBinding", changed("ClusterRoleBinding", sets))
    assert error is not None
    assert says in error.partition(" is invalid: ")[2]
