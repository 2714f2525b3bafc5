"""Roles."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import CREATED, rows

test_row = rows("Role", cases=[
    ({}, ["x", CREATED]),
])  # fmt: skip
