"""Roles."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.kinds.rows import CREATED, row


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({}, ["x", CREATED]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("Role", fields) == cells
