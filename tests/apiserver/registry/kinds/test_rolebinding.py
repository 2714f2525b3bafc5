"""RoleBindings."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import columns, rows
from tests.apiserver.registry.rules import KINDS, changed, decoded, updates


def test_a_bindings_subjects_know_their_group() -> None:
    subjects = [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]
    obj = changed("RoleBinding", {"subjects": subjects, "metadata.namespace": "n"}, "roleRef")
    obj["roleRef"] = {"kind": "Role", "name": "x"}
    binding = decoded(KINDS["RoleBinding"], obj)
    group = "rbac.authorization.k8s.io"
    assert binding["roleRef"]["apiGroup"] == group
    assert binding["subjects"] == [
        {"kind": "User", "name": "u", "apiGroup": group},
        {"kind": "ServiceAccount", "name": "s", "namespace": "n"},
    ]


test_update = updates("RoleBinding", cases=[
    ({}, {"roleRef.name": "z"},
     'roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role",'
     '"name":"z"}: cannot change roleRef'),
    ({}, {"subjects": []}, ""),
])  # fmt: skip


test_row = rows("RoleBinding", cases=[
    ({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
        {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
        {"kind": "Group", "name": "g"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]},
     ["x", "Role/r", "90s", "u, v", "g", "n/s"]),
])  # fmt: skip


def test_columns() -> None:
    assert columns("RoleBinding") == "Name Role Age | Users Groups ServiceAccounts"
