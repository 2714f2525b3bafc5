"""ClusterRoles."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns
from tests.apiserver.registry.rules import creations

test_creation = creations("ClusterRole", cases=[
    ({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, None),
    ({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"],
                                "resources": ["pods"]}]},
     'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular '
     "resources and non-resource URLs"),
    ({"aggregationRule": {}},
     "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector "
     "required if aggregationRule is non-nil"),
])  # fmt: skip


def test_columns() -> None:
    assert columns("ClusterRole") == "Name Created_At |"
