"""RoleBindings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import KINDS, changed, decoded, update_complaint


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


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"roleRef.name": "z"},
         'roleRef: Invalid value: {"apiGroup":"rbac.authorization.k8s.io","kind":"Role",'
         '"name":"z"}: cannot change roleRef'),
        ({}, {"subjects": []}, ""),
    ],
)  # fmt: skip
def test_update(before: dict[str, Any], after: dict[str, Any], says: str) -> None:
    error = update_complaint(
        "RoleBinding", changed("RoleBinding", after), changed("RoleBinding", before)
    )
    assert (error or "") == says


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"},
            {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]},
         ["x", "Role/r", "90s", "u, v", "g", "n/s"]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("RoleBinding", fields) == cells


def test_columns() -> None:
    assert columns("RoleBinding") == "Name Role Age | Users Groups ServiceAccounts"
