"""Paths that name one field of a schema."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.validation.field_paths import FieldPathError, resolve_field_path

STRING = {"type": "string"}
SCHEMA = {
    "properties": {
        "a": {"properties": {"b": STRING, "x.y": STRING, "it's": STRING}},
        "map": {"additionalProperties": STRING},
        "any": {"additionalProperties": True},
    }
}


@pytest.mark.parametrize(
    ("path", "name", "schema"),
    [
        ("", "", SCHEMA),
        (".a.b", "a.b", STRING),
        (".a['x.y']", "a.x.y", STRING),
        (r".a['it\'s']", "a.it's", STRING),
        (".map.k", "map[k]", STRING),
        ("['map']['k']", "map[k]", STRING),
        (".any.k", "any[k]", None),
    ],
)
def test_paths_of_fields(path: str, name: str, schema: object) -> None:
    assert resolve_field_path(path, SCHEMA) == (name, schema)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("a", "expected [ or . but got: a"),
        (".c", "does not refer to a valid field"),
        (".a.b.c", "does not refer to a valid field"),
        (".any.k.l", "does not refer to a valid field"),
        (".", "unexpected end of JSON path"),
        (".a[", "unexpected end of JSON path"),
        (".a['b'", "unexpected end of JSON path"),
        (".a['b'.", "expected ] but got ."),
        (".a[b]", "expected single quoted string but got b"),
        (r".a['\q']", r"invalid string literal: invalid escape char \q"),
    ],
)
def test_paths_of_nothing(path: str, says: str) -> None:
    with pytest.raises(FieldPathError) as caught:
        resolve_field_path(path, SCHEMA)
    assert str(caught.value) == says
