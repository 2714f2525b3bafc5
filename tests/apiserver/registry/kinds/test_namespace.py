"""Namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kinds.core import (
    prepare_namespace_create,
    prepare_namespace_finalize,
    prepare_namespace_update,
)
from tests.apiserver.registry.kinds.rows import row


def test_a_namespace_is_named_by_a_label_and_held() -> None:
    namespace = {"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "z"}}}
    prepare_namespace_create(namespace)
    assert namespace == {
        "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def test_finalizers_of_a_namespace_change_through_finalize_only() -> None:
    old = {"metadata": {}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    new: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {"phase": "Other"}}
    prepare_namespace_update(new, old)
    assert new == old
    new = {"metadata": {}, "spec": {}, "status": {}}
    prepare_namespace_finalize(new, old)
    assert new == {"metadata": {}, "spec": {}, "status": {"phase": "Active"}}


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({"status": {"phase": "Active"}}, ["x", "Active", "90s"]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("Namespace", fields) == cells
