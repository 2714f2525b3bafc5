"""Typed schemas: the type of each kind of schema, for values and for fields of objects."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.environment import make_typed_environment
from moorage.apiserver.cel.program import CompileError, Program, type_name
from moorage.apiserver.cel.typed_schema import TypedSchema, in_words_of_kubernetes
from moorage.apiserver.cel.values import names_of

TEXT: dict[str, Any] = {"type": "string"}
INNER: dict[str, Any] = {"type": "object", "properties": {"text": TEXT}}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


KINDS: list[tuple[dict[str, Any], str]] = [
    ({"type": "boolean"}, "bool"),
    ({"type": "integer"}, "int"),
    ({"type": "number"}, "double"),
    (TEXT, "string"),
    ({**TEXT, "format": "other"}, "string"),
    ({**TEXT, "format": "byte"}, "bytes"),
    ({**TEXT, "format": "date"}, "google.protobuf.Timestamp"),
    ({**TEXT, "format": "date-time"}, "google.protobuf.Timestamp"),
    ({**TEXT, "format": "duration"}, "google.protobuf.Duration"),
    ({**TEXT, "nullable": True}, "dyn"),
    ({**array(TEXT), "nullable": True}, "dyn"),
    ({**mapping(TEXT), "nullable": True}, "dyn"),
    ({"x-kubernetes-int-or-string": True}, "dyn"),
    (array(TEXT), "list(string)"),
    (array({"type": "integer"}), "list(int)"),
    (array({**TEXT, "format": "duration"}), "list(google.protobuf.Duration)"),
    (array({**TEXT, "format": "byte"}), "list(bytes)"),
    (array({**TEXT, "nullable": True}), "list(dyn)"),
    (mapping(TEXT), "map(string, string)"),
    (mapping({"type": "boolean"}), "map(string, bool)"),
    (mapping({**TEXT, "format": "date"}), "map(string, google.protobuf.Timestamp)"),
]


@pytest.mark.parametrize(("schema", "name"), KINDS)
def test_a_value_has_the_type_of_its_schema(schema: dict[str, Any], name: str) -> None:
    assert type_name(TypedSchema({**INNER}).type_of(schema)) == name


def type_of(expression: str, **properties: Any) -> str:
    schema = {"type": "object", "properties": properties}
    typed = TypedSchema(schema)
    environment = make_typed_environment(typed.pool, {"self": typed.type_of(schema)})
    return type_name(Program(environment, expression).type)


@pytest.mark.parametrize(("schema", "name"), KINDS)
def test_a_field_has_the_type_of_its_schema(schema: dict[str, Any], name: str) -> None:
    assert type_of("self.field", field=schema) == name
    assert type_of("self.o.field", o={"type": "object", "properties": {"field": schema}}) == name
    many = array({"type": "object", "properties": {"field": schema}})
    assert type_of("self.many[0].field", many=many) == name
    assert type_of("self.m['a'].field", m=mapping(many["items"])) == name


@pytest.mark.parametrize(
    ("expression", "field", "name"),
    [
        # Protobuf has no lists of lists and no maps of maps: these are dynamic.
        ("self.x[0][0]", array(array(TEXT)), "dyn"),
        ("self.x[0]['a']", array(mapping(TEXT)), "dyn"),
        ("self.x['a'][0]", mapping(array(TEXT)), "dyn"),
        ("self.x['a'].b", mapping(mapping(TEXT)), "dyn"),
        ("self.x['a'].text", mapping(INNER), "string"),
        ("self.x.map(i, i.text)", array(INNER), "list(string)"),
        ("self.x.metadata.name", {**INNER, "x-kubernetes-embedded-resource": True}, "string"),
        ("self.x.kind", {**INNER, "x-kubernetes-embedded-resource": True}, "string"),
        ("self.metadata.name + self.kind + self.apiVersion", TEXT, "string"),
    ],
)
def test_what_is_inside_of_others(expression: str, field: Any, name: str) -> None:
    assert type_of(expression, x=field) == name


@pytest.mark.parametrize(
    ("expression", "properties"),
    [
        ("self.absent", {}),
        ("self.open", {"open": {"x-kubernetes-preserve-unknown-fields": True}}),
        ("self.x.kind", {"x": INNER}),
        ("self.x.metadata", {"x": INNER}),
        ("self.metadata.labels", {}),
    ],
)
def test_a_field_that_is_not_accessible_is_unknown(
    expression: str, properties: dict[str, Any]
) -> None:
    with pytest.raises(CompileError, match="undefined field"):
        type_of(expression, **properties)


def test_names_of_entries_that_are_taken_make_a_map_dynamic() -> None:
    fields = {"a_b": mapping(TEXT), "ABEntry": TEXT}
    assert type_of("self.a_b['x']", **fields) == "dyn"
    assert type_of("self.ABEntry", **fields) == "string"
    assert type_of("self.aB['x']", aB=mapping(TEXT), AB=mapping({"type": "integer"})) == "string"


def test_an_object_may_have_more_fields_than_protobuf_has_numbers_before_its_reserved_ones() -> (
    None
):
    fields = {f"f{index}": {"type": "boolean"} for index in range(19_010)}
    schema = {"type": "object", "properties": fields}
    typed = TypedSchema(schema)
    environment = make_typed_environment(typed.pool, {"self": typed.type_of(schema)})
    assert type_name(Program(environment, "self.f19009").type) == "bool"


def test_a_message_type_leads_back_to_its_schema() -> None:
    typed = TypedSchema(INNER)
    assert typed.schema_of(str(typed.type_of(INNER))) is INNER
    assert typed.schema_of("google.protobuf.Timestamp") is None


def test_errors_name_no_types_of_ours_and_none_that_follow_from_others() -> None:
    error = (
        "ERROR: <input>:1:5: undefined field 'a' not found in struct 'schema.M0'\n | x\n | ^"
        "\nERROR: <input>:1:9: no overload applied to '(schema.M12)' or '*error*'\n | x\n | ^"
    )
    assert in_words_of_kubernetes(error) == "ERROR: <input>:1:5: undefined field 'a'\n | x\n | ^"
    assert in_words_of_kubernetes("'(schema.M0, schema.M12)'") == "'(object, object)'"


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (TEXT, "string"),
        ({"type": "integer"}, "int"),
        ({**TEXT, "format": "date"}, "google.protobuf.Timestamp"),
        # A message has room for 8,000 lists and maps: an object with more is a map of any values.
        (array(TEXT), "dyn"),
        (mapping(TEXT), "dyn"),
    ],
)
def test_an_object_may_have_thousands_of_fields_of_one_kind(
    schema: dict[str, Any], name: str
) -> None:
    inner = {"type": "object", "properties": {f"f{index}": schema for index in range(9_000)}}
    assert type_of("self.o.f8999", o=inner) == name
    assert type_of("self.l[0].f8999", l=array(inner)) == name


def test_thousands_of_fields_of_all_kinds_stand_beside_each_other() -> None:
    fields = {f"f{index}": KINDS[index % len(KINDS)][0] for index in range(12_000)}
    schema = {"type": "object", "properties": fields}
    typed = TypedSchema(schema)
    environment = make_typed_environment(typed.pool, {"self": typed.type_of(schema)})
    for index, (_, name) in enumerate(KINDS):
        assert type_name(Program(environment, f"self.f{index}").type) == name
    with pytest.raises(CompileError, match="undefined field 'other'"):
        Program(environment, "self.other")


@pytest.mark.parametrize(
    ("schema", "most"), [(TEXT, 65_535), (array(TEXT), 8_000), (mapping(TEXT), 8_000)]
)
def test_an_object_whose_message_would_be_too_large_is_a_map_of_any_values(
    schema: dict[str, Any], most: int
) -> None:
    fields = {f"f{index}": schema for index in range(most)}
    whole = {"type": "object", "properties": fields}
    typed = TypedSchema(whole, is_resource=False)
    assert type_name(typed.type_of(whole)) == "schema.M0"
    larger = {"type": "object", "properties": {**fields, "another": schema}}
    typed = TypedSchema(larger, is_resource=False)
    assert type_name(typed.type_of(larger)) == "map(string, dyn)"
    listed = array(larger)
    typed = TypedSchema({"type": "object", "properties": {"list": listed}})
    assert type_name(typed.type_of(listed)) == "list(map(string, dyn))"


@pytest.mark.parametrize(
    "names", [("f2", "f1"), ("f3", "f2", "f1"), ("fooBar", "foo_bar"), ("f_1", "f1")]
)
def test_fields_of_any_names_and_order_stand_beside_each_other(names: tuple[str, ...]) -> None:
    fields = dict.fromkeys(names, TEXT)
    assert [type_of(f"self.{name}", **fields) for name in names] == ["string"] * len(names)


@pytest.mark.parametrize("name", ["_1", "_1-", "_", "__", "__one__", "M0", "_M0", "Entry"])
def test_a_field_of_any_name_and_kind_is_known(name: str) -> None:
    for kind, _ in KINDS:
        expression = f"has(self.{names_of(name)[0]}) && has(self.M0Entry)"
        assert type_of(expression, **{name: kind, "M0Entry": mapping(TEXT)}) == "bool"
