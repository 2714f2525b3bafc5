"""What the types and formats of a schema make of JSON, seen by expressions."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.program import Program
from moorage.apiserver.cel.values import as_resource, conversion_of, escape, type_of


def evaluate(schema: dict[str, Any], value: Any, expression: str) -> Any:
    program = Program(make_environment({"self": type_of(schema)}), expression)
    return program.evaluate({"self": conversion_of(schema)(value)})


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


NUMBER, TEXT, WHEN = {"type": "number"}, {"type": "string"}, {"type": "string", "format": "date"}
MOMENT = {"type": "string", "format": "date-time"}
SPAN = {"type": "string", "format": "duration"}
BYTES = {"type": "string", "format": "byte"}
EITHER = {"x-kubernetes-int-or-string": True}


@pytest.mark.parametrize(
    ("schema", "value", "expression"),
    [
        (NUMBER, 3, "self + 0.5 == 3.5"),
        ({"type": "integer"}, 3, "self + 1 == 4"),
        ({"type": "boolean"}, True, "self"),
        (BYTES, "YWI=", "self == b'ab' && self.size() == 2"),
        (MOMENT, "2026-01-01T00:00:00Z", "self > timestamp('2025-01-01T00:00:00Z')"),
        (WHEN, "2026-01-02", "self.getDate('UTC') == 2"),
        (SPAN, "1h30m", "self == duration('90m')"),
        (SPAN, "-1.5s", "self == duration('-1500ms')"),
        (SPAN, "2 d", "self == duration('48h')"),
        (EITHER, 80, "type(self) == int && self == 80"),
        (EITHER, "http", "type(self) == string"),
        ({"type": "string", "nullable": True}, None, "self == null"),
        # Inside of others.
        (an_object(n=NUMBER), {"n": 1}, "self.n == 1.0 && type(self.n) == double"),
        (an_object(t=MOMENT), {"t": "2026-01-01T00:00:00Z"}, "self.t.getFullYear() == 2026"),
        ({"type": "array", "items": NUMBER}, [1, 2], "self.all(x, type(x) == double)"),
        ({"type": "array", "items": an_object(t=SPAN)}, [{"t": "1s"}],
         "self[0].t < duration('2s')"),
        ({"type": "object", "additionalProperties": NUMBER}, {"a-b": 1}, "self['a-b'] == 1.0"),
        ({"type": "object", "additionalProperties": TEXT}, {"a": "b"}, "self.a == 'b'"),
        # Names that are no identifiers.
        (an_object(**{"a-b": TEXT}), {"a-b": "x"}, "self.a__dash__b == 'x'"),
        (an_object(**{"a.b/c": TEXT}), {"a.b/c": "x"}, "self.a__dot__b__slash__c == 'x'"),
        (an_object(namespace=TEXT), {"namespace": "x"}, "self.__namespace__ == 'x'"),
        (an_object(namespace=TEXT), {"namespace": "x"}, "self.namespace == 'x'"),
        (an_object(namespace=TEXT), {}, "!has(self.namespace) && !has(self.__namespace__)"),
        (an_object(a=an_object(**{"import": TEXT})), {"a": {"import": "x"}},
         "self.a.import == 'x' && self.a.?import.orValue('') == 'x' && self.a == self.a"),
        (an_object(a__b=TEXT), {"a__b": "x"}, "self.a__underscores__b == 'x'"),
        (an_object(**{"a b": TEXT, "c": TEXT}), {"a b": "x", "c": "y"}, "self.size() == 1"),
        # What the schema does not specify is not accessible, nor what it gives no type.
        ({**an_object(a=TEXT), "x-kubernetes-preserve-unknown-fields": True}, {"a": "x", "b": 1},
         "has(self.a) && !has(self.b)"),
        (an_object(a={"x-kubernetes-preserve-unknown-fields": True}), {"a": {}}, "!has(self.a)"),
        ({**an_object(spec=an_object(n=NUMBER)), "x-kubernetes-embedded-resource": True},
         {"kind": "Pod", "metadata": {"name": "x", "labels": {}}, "spec": {"n": 1}},
         "self.kind == 'Pod' && self.metadata.name == 'x' && !has(self.metadata.labels)"),
    ],
)  # fmt: skip
def test_a_value_as_its_schema_says(schema: dict[str, Any], value: Any, expression: str) -> None:
    assert evaluate(schema, value, expression) is True


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (BYTES, "%"), (BYTES, 1), (MOMENT, "soon"), (MOMENT, 1), (SPAN, "1x"), (SPAN, ""),
        (SPAN, "h1"), (SPAN, 1), (NUMBER, "1"), (NUMBER, True),
        ({"type": "array", "items": NUMBER}, 1),
        (an_object(a=TEXT), 1), ({"type": "object", "additionalProperties": NUMBER}, []),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_stays_as_it_is(schema: dict[str, Any], value: Any) -> None:
    assert conversion_of(schema)(value) == value


@pytest.mark.parametrize(
    ("name", "escaped"),
    [("a", "a"), ("_a1", "_a1"), ("in", "__in__"), ("int", "int"), ("a b", None), ("1a", None),
     ("é", None), ("", None), ("-", "__dash__"), ("a___b", "a__underscores___b")],
)  # fmt: skip
def test_names_of_fields(name: str, escaped: str | None) -> None:
    assert escape(name) == escaped


def test_a_resource_has_its_names() -> None:
    resource = as_resource(an_object(spec=TEXT))
    assert sorted(resource["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
