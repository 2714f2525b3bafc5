"""Secrets."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kinds.core import prepare_secret_update
from tests.apiserver.registry.kinds.rows import row
from tests.apiserver.registry.rules import KINDS, changed, decoded, update_complaint


def test_a_secrets_clear_text_wins_over_what_is_encoded() -> None:
    secret = decoded(KINDS["Secret"], changed("Secret", {"stringData": {"a": "new", "b": "x"}}))
    assert secret["data"] == {"a": "bmV3", "b": "eA=="}
    assert secret["type"] == "Opaque"
    assert "stringData" not in secret


def test_a_secret_keeps_its_type() -> None:
    new: dict[str, Any] = {"metadata": {}}
    prepare_secret_update(new, {"type": "Opaque"})
    assert new["type"] == "Opaque"


IMMUTABLE = "field is immutable when `immutable` is set"


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({"immutable": True}, {"immutable": True, "data": {"a": "eQ=="}},
         f"data: Forbidden: {IMMUTABLE}"),
        ({"type": "a"}, {"type": "b"}, 'type: Invalid value: "b": field is immutable'),
    ],
)  # fmt: skip
def test_update(before: dict[str, Any], after: dict[str, Any], says: str) -> None:
    error = update_complaint("Secret", changed("Secret", after), changed("Secret", before))
    assert (error or "") == says


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({"type": "Opaque", "data": {"a": ""}}, ["x", "Opaque", 1, "90s"]),
    ],
)  # fmt: skip
def test_row(fields: dict[str, Any], cells: list[Any]) -> None:
    assert row("Secret", fields) == cells
