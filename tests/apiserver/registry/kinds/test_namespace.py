"""Namespaces."""

from __future__ import annotations

from typing import Any

from tests.apiserver.registry.kinds.rows import rows
from tests.apiserver.registry.rules import KINDS

STRATEGY = KINDS["Namespace"].strategy


def test_a_namespace_is_named_by_a_label_and_held() -> None:
    namespace = {"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "z"}}}
    STRATEGY.prepare_create(namespace)
    assert namespace == {
        "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def test_finalizers_of_a_namespace_change_through_finalize_only() -> None:
    old = {"metadata": {}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    new: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {"phase": "Other"}}
    STRATEGY.prepare_update(new, old)
    assert new == old
    new = {"metadata": {}, "spec": {}, "status": {}}
    STRATEGY.parts["finalize"].prepare(new, old)
    assert new == {"metadata": {}, "spec": {}, "status": {"phase": "Active"}}


test_row = rows("Namespace", cases=[
    ({"status": {"phase": "Active"}}, ["x", "Active", "90s"]),
])  # fmt: skip
