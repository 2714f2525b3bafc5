from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.apiserver.registry.schema import Schema, load_schema
from moorage.apiserver.registry.schema.decode import JsonDecoder
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.schema.normalize import Normalizer
from moorage.apiserver.registry.schema.protobuf import ProtobufDecoder, open_envelope
from tests.apiserver.registry.schema.wire_encoder import encode, envelope

SCHEMA = load_schema()
JSON = JsonDecoder(SCHEMA)
NORMALIZER = Normalizer(SCHEMA)
PROTOBUF = ProtobufDecoder(SCHEMA)
POD = "io.k8s.api.core.v1.Pod"
CLASS = "io.k8s.api.node.v1.RuntimeClass"
DEPLOYMENT = "io.k8s.api.apps.v1.Deployment"
LEASE = "io.k8s.api.coordination.v1.Lease"


def decode(type_name: str, document: Any) -> tuple[dict[str, Any], list[str]]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    obj, complaints = JSON.decode(type_name, body)
    return NORMALIZER.normalize(type_name, obj), list(complaints)


def test_unknown_and_repeated_fields_are_named_in_the_order_they_stand() -> None:
    body = (
        b'{"spec":{"a":1,"containers":[{"imagee":"x","name":"a","name":"b"}],"containers":[]},'
        b'"datx":1}'
    )
    _, complaints = decode(POD, body)
    assert complaints == [
        'unknown field "spec.a"',
        'unknown field "spec.containers[0].imagee"',
        'duplicate field "spec.containers[0].name"',
        'duplicate field "spec.containers"',
        'unknown field "datx"',
    ]


def test_of_a_repeated_key_the_last_value_stays() -> None:
    obj, complaints = decode(CLASS, b'{"handler":"a","handler":"b"}')
    assert obj["handler"] == "b"
    assert complaints == ['duplicate field "handler"']


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            {"metadata": {"name": 3}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type "
            "string",
        ),
        (
            {"spec": {"runtimeClassName": 1}},
            "json: cannot unmarshal number into Go struct field PodSpec.spec.runtimeClassName of "
            "type string",
        ),
        (
            {"spec": {"containers": {}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type "
            "[]v1.Container",
        ),
        (
            {"spec": "x"},
            "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec",
        ),
        (
            {"spec": {"hostNetwork": "yes"}},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type "
            "bool",
        ),
        ([], "json: cannot unmarshal array into Go value of type v1.Pod"),
        (
            {"spec": {"overhead": {"cpu": "x"}}},
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_value_of_the_wrong_type_is_reported_as_by_gos_decoder(body: Any, sentence: str) -> None:
    with pytest.raises(DecodeError) as refusal:
        decode(POD, body)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":', b"nonsense", b'{"a":1}x', b"\xff\xfe"])
def test_broken_json_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError, match="json parse error"):
        decode(POD, body)


def test_json_nested_without_end_is_refused_not_followed() -> None:
    deep = b'{"metadata":' * 5000
    with pytest.raises(DecodeError):
        decode(POD, deep)


def test_nulls_and_empty_optional_values_are_not_kept() -> None:
    obj, _ = decode(
        POD,
        {
            "metadata": {"name": "a", "labels": {}, "annotations": None},
            "spec": {"hostNetwork": False, "nodeName": "", "tolerations": [], "priority": 0},
        },
    )
    assert obj["metadata"] == {"name": "a"}
    assert obj["spec"] == {"priority": 0}


def test_an_empty_object_behind_a_pointer_is_kept_and_its_empty_parts_are_not() -> None:
    obj, _ = decode(
        CLASS,
        {"handler": "h", "overhead": {"podFixed": {}}, "scheduling": {"tolerations": []}},
    )
    assert (obj["overhead"], obj["scheduling"]) == ({}, {})


def test_what_the_api_always_writes_is_added() -> None:
    obj, _ = decode(POD, {"spec": {"containers": [{"image": "x"}]}})
    assert obj["status"] == {}
    assert obj["spec"]["containers"] == [{"image": "x", "name": "", "resources": {}}]


def test_times_and_quantities_get_their_one_spelling() -> None:
    obj, _ = decode(
        POD,
        {
            "metadata": {"creationTimestamp": "2026-01-01T02:00:00.5+02:00"},
            "spec": {"overhead": {"cpu": "0.5", "memory": 1024}},
        },
    )
    assert obj["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert obj["spec"]["overhead"] == {"cpu": "500m", "memory": "1024"}


def test_a_micro_time_needs_its_six_digits() -> None:
    good, _ = decode(LEASE, {"spec": {"renewTime": "2026-01-01T00:00:00.000001Z"}})
    assert good["spec"]["renewTime"] == "2026-01-01T00:00:00.000001Z"
    with pytest.raises(DecodeError, match="parsing time"):
        decode(LEASE, {"spec": {"renewTime": "2026-01-01T00:00:00Z"}})


def test_secret_data_must_be_base64() -> None:
    with pytest.raises(DecodeError, match="illegal base64"):
        decode("io.k8s.api.core.v1.Secret", {"data": {"a": "%%%"}})


_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(alphabet="abc -", max_size=4),
    "bytes": st.sampled_from(["", "aGk=", "AAEC"]),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.just(0.5),
    "time": st.sampled_from(["2026-01-01T00:00:00Z", "1999-12-31T23:59:59Z"]),
    "microTime": st.sampled_from(["2026-01-01T00:00:00.000001Z"]),
    "quantity": st.sampled_from(["1", "500m", "1Gi"]),
    "intOrString": st.one_of(st.integers(0, 9), st.sampled_from(["25%", "http"])),
    "any": st.just({"f:a": {}}),
    "strings": st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2),
}


@cache
def deferred_objects(type_name: str, depth: int) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: objects(type_name, depth))


@cache
def objects(type_name: str, depth: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    """Objects of a type with a few of its fields, ever fewer the deeper they lie.

    One strategy for each type and depth: to make and validate one takes longer than to draw.
    """
    type_ = SCHEMA[type_name]
    usable = [f for f in type_.fields if f.name not in ("kind", "apiVersion")]
    members: dict[str, st.SearchStrategy[Any]] = {}
    for field in usable:
        if field.kind == "object" and depth > 3:
            continue
        one = (
            deferred_objects(field.type, depth + 1)
            if field.kind == "object"
            else _SCALARS[field.kind]
        )
        members[field.name] = {
            "": one,
            "list": st.lists(one, min_size=1, max_size=2),
            "map": st.dictionaries(st.sampled_from(["k", "l"]), one, min_size=1, max_size=2),
        }[field.container]

    if not members:
        return st.just({})
    chosen = st.lists(st.sampled_from(sorted(members)), max_size=4, unique=True)

    def some(draw: st.DrawFn) -> dict[str, Any]:
        return {name: draw(members[name]) for name in draw(chosen)}

    return st.composite(some)()


@pytest.mark.parametrize("type_name", [POD, CLASS, DEPLOYMENT, LEASE, "io.k8s.api.core.v1.Service"])
@settings(max_examples=min(40, settings().max_examples), deadline=None)
@given(data=st.data())
def test_protobuf_and_json_of_an_object_read_the_same(type_name: str, data: st.DataObject) -> None:
    obj = data.draw(objects(type_name))
    by_json = NORMALIZER.normalize(type_name, copy.deepcopy(obj))
    raw = open_envelope(envelope("v1", "X", encode(SCHEMA, type_name, obj))).raw
    by_protobuf = NORMALIZER.normalize(type_name, PROTOBUF.decode(type_name, raw))
    assert by_protobuf == by_json


@pytest.mark.parametrize(
    ("value", "kept"), [(0, {}), (80, {"targetPort": 80}), ("", {"targetPort": ""})]
)
def test_the_number_zero_of_an_int_or_string_is_absent(
    value: int | str, kept: dict[str, Any]
) -> None:
    type_name = "io.k8s.api.core.v1.Service"
    obj = {"spec": {"ports": [{"port": 1, "targetPort": value}]}}
    raw = open_envelope(envelope("v1", "X", encode(SCHEMA, type_name, obj))).raw
    for decoded in (PROTOBUF.decode(type_name, raw), obj):
        ports = NORMALIZER.normalize(type_name, decoded)["spec"]["ports"]
        assert ports == [{"port": 1, **kept}]


@pytest.mark.parametrize("type_name", [POD, CLASS, DEPLOYMENT])
@settings(max_examples=min(40, settings().max_examples), deadline=None)
@given(data=st.data())
def test_the_canonical_form_is_stable_and_passes_strict_validation(
    type_name: str, data: st.DataObject
) -> None:
    once = NORMALIZER.normalize(type_name, data.draw(objects(type_name)))
    again, complaints = JSON.decode(type_name, msgspec.json.encode(once))
    assert complaints == []
    assert NORMALIZER.normalize(type_name, again) == once


@given(st.binary(max_size=60))
def test_garbage_in_protobuf_is_refused_cleanly(raw: bytes) -> None:
    try:
        PROTOBUF.decode(POD, raw)
    except DecodeError:
        return


def test_a_body_without_the_magic_is_not_protobuf() -> None:
    with pytest.raises(DecodeError, match=r"expected prefix \[107 56 115 0\]"):
        open_envelope(b"{}")


def test_every_type_a_field_names_is_in_the_schema() -> None:
    schema: Schema = SCHEMA
    for name in (POD, CLASS, DEPLOYMENT):
        waiting, seen = [name], set()
        while waiting:
            type_ = schema[waiting.pop()]
            seen.add(type_.name)
            waiting += [f.type for f in type_.fields if f.type and f.type not in seen]
