"""ConfigMaps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import row
from tests.apiserver.registry.rules import changed, update_complaint

IMMUTABLE = "field is immutable when `immutable` is set"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({"immutable": True}, {"immutable": True, "data": {"a": "c"}},
         f"data: Forbidden: {IMMUTABLE}"),
        ({"immutable": True}, {}, f"immutable: Forbidden: {IMMUTABLE}"),
        ({"immutable": True}, {"immutable": True, "metadata.labels": {"a": "b"}}, ""),
        ({}, {"immutable": True, "data": {"a": "c"}}, ""),
    ],
)  # fmt: skip
def test_update(before: dict[str, Any], after: dict[str, Any], says: str) -> None:
    error = update_complaint("ConfigMap", changed("ConfigMap", after), changed("ConfigMap", before))
    assert (error or "") == says


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({"data": {"a": "1"}, "binaryData": {"b": ""}}, ["x", 2, "90s"]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("ConfigMap", fields) == cells
