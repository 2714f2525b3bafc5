"""Secrets."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.kinds.core import prepare_secret_update
from tests.apiserver.registry.kinds.rows import rows
from tests.apiserver.registry.rules import KINDS, changed, decoded, updates


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


test_update = updates("Secret", cases=[
    ({"immutable": True}, {"immutable": True, "data": {"a": "eQ=="}},
     f"data: Forbidden: {IMMUTABLE}"),
    ({"type": "a"}, {"type": "b"}, 'type: Invalid value: "b": field is immutable'),
])  # fmt: skip


test_row = rows("Secret", cases=[
    ({"type": "Opaque", "data": {"a": ""}}, ["x", "Opaque", 1, "90s"]),
])  # fmt: skip
