"""ClusterRoles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns
from tests.apiserver.registry.rules import changed, complaint


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, None),
        ({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"],
                                    "resources": ["pods"]}]},
         'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular '
         "resources and non-resource URLs"),
        ({"aggregationRule": {}},
         "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector "
         "required if aggregationRule is non-nil"),
    ],
)  # fmt: skip
def test_creation(sets: dict[str, Any], says: str | None) -> None:
    error = complaint("ClusterRole", changed("ClusterRole", sets))
    if says is None:
        assert error is None
    else:
        assert error is not None
        assert says in error.partition(" is invalid: ")[2]


def test_columns() -> None:
    assert columns("ClusterRole") == "Name Created_At |"
