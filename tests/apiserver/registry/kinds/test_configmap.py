"""ConfigMaps."""

from __future__ import annotations

from tests.apiserver.registry.kinds.rows import rows
from tests.apiserver.registry.rules import updates

IMMUTABLE = "field is immutable when `immutable` is set"


test_update = updates("ConfigMap", cases=[
    ({"immutable": True}, {"immutable": True, "data": {"a": "c"}},
     f"data: Forbidden: {IMMUTABLE}"),
    ({"immutable": True}, {}, f"immutable: Forbidden: {IMMUTABLE}"),
    ({"immutable": True}, {"immutable": True, "metadata.labels": {"a": "b"}}, ""),
    ({}, {"immutable": True, "data": {"a": "c"}}, ""),
])  # fmt: skip


test_row = rows("ConfigMap", cases=[
    ({"data": {"a": "1"}, "binaryData": {"b": ""}}, ["x", 2, "90s"]),
])  # fmt: skip
