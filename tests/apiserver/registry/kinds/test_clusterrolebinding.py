"""ClusterRoleBindings."""

from __future__ import annotations

from tests.apiserver.registry.rules import creations

test_creation = creations("ClusterRoleBinding", cases=[
    ({"roleRef.kind": "Role"},
     'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'),
    ({"subjects": [{"kind": "ServiceAccount", "name": "s"}]},
     "subjects[0].namespace: Required value"),
])  # fmt: skip
