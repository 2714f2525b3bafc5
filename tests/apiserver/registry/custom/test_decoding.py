"""Bodies of custom resources: what their values become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.api.errors import InvalidError
from moorage.apiserver.registry.custom.decoding import CustomType
from moorage.apiserver.registry.custom.rules import compile_rules
from moorage.apiserver.registry.custom.structure import compile_structure

_ITEM = {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "i": {"type": "integer", "format": "int64"},
        "n": {"type": "number"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "o": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "keyed": {
            "type": "array", "items": _ITEM, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
        },
    },
}  # fmt: skip
_TYPE = CustomType("t", "T", "g", compile_structure(_SCHEMA), compile_rules(_SCHEMA))


@pytest.mark.parametrize("completes", [True, False])
@pytest.mark.parametrize(
    ("body", "result"),
    [
        ('{"i": 1.0}', '{"i": 1}'),
        ('{"i": -1e3, "l": [2.0, 2]}', '{"i": -1000, "l": [2, 2]}'),
        ('{"n": 1.5, "i": 1.5}', '{"n": 1.5, "i": 1.5}'),
        ('{"n": 2.0, "o": {"a": [{"b": 3.0}]}}', '{"n": 2, "o": {"a": [{"b": 3}]}}'),
        ('{"n": 1e300, "i": 1e300}', '{"n": 1e+300, "i": 1e+300}'),
    ],
)
def test_whole_numbers_become_integers(body: str, result: str, completes: bool) -> None:
    obj = json.loads(body)
    assert _TYPE.fit(obj, completes=completes) == []
    assert json.dumps(obj) == result


def test_an_item_of_a_list_with_keys_is_not_null() -> None:
    with pytest.raises(InvalidError, match=r"keyed\[1\]"):
        _TYPE.fit({"keyed": [{"k": "a"}, None]})
