"""Objects in protobuf: read back as they were, by our decoder and with Google's library."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.apiserver.registry.kinds import ALL_KINDS, STORED_KINDS
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.schema.normalize import Normalizer
from moorage.apiserver.registry.schema.protobuf import ProtobufDecoder, open_envelope
from moorage.apiserver.registry.schema.protobuf_encoder import (
    ProtobufEncoder,
    delimited,
    enveloped,
    enveloped_head,
    varint,
)
from tests.apiserver.registry.rich_objects import RICH
from tests.apiserver.registry.schema.test_codecs import objects

SCHEMA = load_schema()
NORMALIZER = Normalizer(SCHEMA)
ENCODER = ProtobufEncoder(SCHEMA)
DECODER = ProtobufDecoder(SCHEMA)
POD = "io.k8s.api.core.v1.Pod"
DEFINITION = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
SCHEMA_PROPS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
KINDS = {kind.name: kind for kind in STORED_KINDS}


@pytest.mark.parametrize("name", sorted(RICH))
def test_a_rich_object_reads_back_as_it_was(name: str) -> None:
    type_name = KINDS[name.split()[0]].storage.type
    obj = NORMALIZER.normalize(type_name, copy.deepcopy(RICH[name]))
    decoded = DECODER.decode(type_name, ENCODER.encode(type_name, obj))
    assert NORMALIZER.normalize(type_name, decoded) == obj


@pytest.mark.parametrize(
    "type_name",
    sorted(
        {
            served.type
            for kind in ALL_KINDS
            for served in kind.served
            if kind.group != "metrics.k8s.io"
        }
    ),
)
@settings(max_examples=max(4, settings().max_examples // 10), deadline=None)
@given(data=st.data())
def test_objects_of_every_kind_read_back_as_they_were(type_name: str, data: st.DataObject) -> None:
    if type_name == DEFINITION:
        return  # Its schemas have tests of their own.
    obj = NORMALIZER.normalize(type_name, data.draw(objects(type_name)))
    decoded = DECODER.decode(type_name, ENCODER.encode(type_name, copy.deepcopy(obj)))
    assert NORMALIZER.normalize(type_name, decoded) == obj


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "$ref": "#/x"}}},
        {"items": {"type": "string"}},
        {"items": [{"type": "string"}, {"type": "integer"}]},
        {"additionalProperties": True},
        {"additionalProperties": False, "additionalItems": {"type": "object"}},
        {"dependencies": {"a": ["b", "c"], "d": {"required": ["e"]}}},
        {"default": {"a": [1, None, "x"]}, "enum": ["a", 1], "minimum": -1.5, "maxLength": 0},
        {"x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-list-map-keys": ["k"]},
    ],
)
def test_schemas_of_definitions_read_back_as_they_were(schema: dict[str, Any]) -> None:
    encoded = ENCODER.encode(SCHEMA_PROPS, schema)
    assert DECODER.decode(SCHEMA_PROPS, encoded) == schema


def test_fields_are_in_the_order_of_their_numbers_and_maps_in_that_of_their_keys() -> None:
    meta = {"labels": {"b": "2", "a": "1"}, "namespace": "n", "name": "x"}
    expected = (
        delimited(1, b"x")
        + delimited(3, b"n")
        + delimited(11, delimited(1, b"a") + delimited(2, b"1"))
        + delimited(11, delimited(1, b"b") + delimited(2, b"2"))
    )
    assert ENCODER.encode(POD, {"metadata": meta}) == delimited(1, expected)


@pytest.mark.parametrize(
    ("field", "value", "raw"),
    [
        ("priority", 0, b"\xc8\x01\x00"),
        ("priority", -1, b"\xc8\x01" + b"\xff" * 9 + b"\x01"),
        ("priority", 300, b"\xc8\x01\xac\x02"),
        ("priority", 2**31 - 1, b"\xc8\x01\xff\xff\xff\xff\x07"),
        ("hostNetwork", True, b"\x58\x01"),
        ("overhead", {"cpu": "250m"}, b"\x82\x02\x0d\x0a\x03cpu\x12\x06\x0a\x04250m"),
    ],
)
def test_values(field: str, value: Any, raw: bytes) -> None:
    assert ENCODER.encode("io.k8s.api.core.v1.PodSpec", {field: value}) == raw


def test_a_time_that_is_absent_from_a_map_is_the_zero_time() -> None:
    status = {"disruptedPods": {"a": None, "b": "1969-12-31T23:59:59Z"}}
    raw = ENCODER.encode("io.k8s.api.policy.v1.PodDisruptionBudgetStatus", status)
    before_1970 = b"\x08" + varint(-1) + b"\x10\x00"
    assert raw == delimited(2, delimited(1, b"a") + delimited(2, b"")) + delimited(
        2, delimited(1, b"b") + delimited(2, before_1970)
    )


@given(st.integers(0, 2**64 - 1))
def test_numbers_are_varints_of_the_usual_form(value: int) -> None:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="n.proto", package="n")
    message = file.message_type.add(name="N")
    message.field.add(name="value", number=1, type=4, label=1)
    pool.Add(file)
    read: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("n.N"))()
    read.ParseFromString(b"\x08" + varint(value))
    assert read.value == value


@pytest.mark.parametrize("length", [0, 127, 128, 2047, 2048, 300_000])
def test_an_envelope_says_what_is_in_it(length: int) -> None:
    message = b"x" * length
    body = enveloped("apps/v1", "Deployment", message)
    envelope = open_envelope(body)
    assert (envelope.api_version, envelope.kind) == ("apps/v1", "Deployment")
    assert envelope.raw == message
    assert body == enveloped_head("apps/v1", "Deployment", length) + message


def test_an_unknown_type_has_no_message() -> None:
    with pytest.raises(KeyError):
        ENCODER.encode("io.example.Unknown", {})


def test_the_verbs_of_a_resource_are_a_message_of_their_own() -> None:
    """As client-go reads discovery: `Verbs` has the list as its field 1."""
    resource = {"name": "pods", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"]}
    encoded = ENCODER.encode("io.k8s.apimachinery.pkg.apis.meta.v1.APIResource", resource)
    assert b'"\x0b\n\x03get\n\x04list' in encoded
