"""Bodies in, stored objects out, in every served version."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from moorage.api.errors import BadRequestError
from moorage.apiserver.registry.codec import Codec, Decoded, Media, strict_error
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.stored import StoredFactory, to_value
from tests.apiserver.registry.schema.wire_encoder import encode, envelope

SCHEMA = load_schema()
CODEC = Codec(SCHEMA)
KINDS = {kind.name: kind for kind in STORED_KINDS}
MAP, CLASS = KINDS["ConfigMap"], KINDS["RuntimeClass"]
V1, V1ALPHA1 = CLASS.served[0], CLASS.served[-1]


def _body(media: Media, api_version: str, kind: str, obj: Obj, type_name: str) -> bytes:
    if media is Media.PROTOBUF:
        return envelope(api_version, kind, encode(SCHEMA, type_name, obj))
    # A JSON document is a YAML document too.
    return json.dumps({"kind": kind, "apiVersion": api_version, **obj}).encode()


def _decode(kind: Kind, body: Any, served: Served | None = None) -> Decoded:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CODEC.decode(kind, served or kind.storage, data, Media.JSON)


@pytest.mark.parametrize("media", Media)
def test_a_body_in_any_medium_is_the_object_alone(media: Media) -> None:
    obj = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    body = _body(media, "v1", "ConfigMap", obj, MAP.storage.type)
    decoded = CODEC.decode(MAP, MAP.storage, body, media)
    assert (decoded.obj, decoded.complaints) == (obj, [])


def test_what_strict_validation_says_is_kept() -> None:
    json_body = b'{"metadata":{"name":"a","name":"b"},"x":1}'
    complaints = ['duplicate field "metadata.name"', 'unknown field "x"']
    assert _decode(MAP, json_body).complaints == complaints
    yaml_body = b"metadata: {name: a}\nmetadata: {name: b}\nx: 1\n"
    decoded = CODEC.decode(MAP, MAP.storage, yaml_body, Media.YAML)
    assert decoded.complaints[-1] == 'unknown field "x"'
    assert len(decoded.complaints) == 2
    assert decoded.obj == {"metadata": {"name": "b"}}


def test_a_body_need_not_say_what_it_is() -> None:
    obj = {"metadata": {"name": "a"}}
    for more in ({}, {"kind": "", "apiVersion": ""}, {"kind": "ConfigMap"}, {"apiVersion": "v1"}):
        assert _decode(MAP, {**obj, **more}).obj == obj


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kind": "Pod"},
         'Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to '
         "(v1.ConfigMap): unknown conversion"),
        ({"kind": "Deployment", "apiVersion": "apps/v1beta1"},
         'Deployment in version "v1beta1" cannot be handled as a ConfigMap: converting '
         "(v1beta1.Deployment) to (v1.ConfigMap): unknown conversion"),
        ({"apiVersion": "apps/v2"},
         "the API version in the data (apps/v2) does not match the expected API version (v1)"),
        ({"data": 3}, 'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot '
         "unmarshal number into Go struct field ConfigMap.data of type map[string]string"),
    ],
)  # fmt: skip
def test_a_body_of_another_kind_version_or_shape_is_refused(
    more: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        _decode(MAP, {"metadata": {"name": "a"}, **more})
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("media", "body", "why", "shown"),
    [
        (Media.JSON, b"", "couldn't get version/kind; json parse error", "(<empty>)"),
        (Media.JSON, b"{", "couldn't get version/kind; json parse error", "({)"),
        (Media.JSON, b'{"a": "' + b"x" * 23, "json parse error", f'({{"a": "{"x" * 23})'),
        (Media.JSON, b'{"a": "' + b"x" * 24, "json parse error", f'({{"a": "{"x" * 23} ...)'),
        (Media.JSON, b"\xff" * 31, "json parse error", f"({'ff' * 30} ...)"),
        (Media.YAML, b"a: [", "yaml: ", "(613a205b)"),
        (Media.PROTOBUF, b"{}", "provided data does not appear", "({})"),
    ],
)
def test_undecodable_body_is_quoted_in_part(
    media: Media, body: bytes, why: str, shown: str
) -> None:
    with pytest.raises(BadRequestError) as caught:
        CODEC.decode(MAP, MAP.storage, body, media)
    start = "the object provided is unrecognized (must be of type ConfigMap): "
    assert caught.value.message.startswith(start)
    assert why in caught.value.message
    assert caught.value.message.endswith(shown)


def test_a_type_may_be_named_by_further_versions() -> None:
    def decode(api_version: str, *also: str) -> Obj:
        body = json.dumps({"kind": "ConfigMap", "apiVersion": api_version}).encode()
        arguments = ("ConfigMap", "v1", MAP.storage.type, body, Media.JSON)
        return CODEC.decode_as(*arguments, also).obj

    assert decode("v1") == decode("v9", "v8", "v9") == {"metadata": {}}
    with pytest.raises(BadRequestError, match=r"\(v9\) does not match .* \(v1\)"):
        decode("v9", "v8")


def test_versions_are_converted_and_defaulted() -> None:
    old = {"metadata": {"name": "a"}, "spec": {"runtimeHandler": "kata"}}
    stored = _decode(CLASS, old, V1ALPHA1).obj
    assert stored == {"metadata": {"name": "a"}, "handler": "kata"}
    assert CODEC.from_storage(V1ALPHA1, stored) == old
    assert CODEC.from_storage(V1, stored) is stored
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert _decode(KINDS["Pod"], pod).obj["spec"]["restartPolicy"] == "Always"


def test_stored_objects_are_written_in_the_version_asked_for() -> None:
    value = to_value({"metadata": {"name": "a"}, "handler": "kata"})
    item = StoredFactory(STORED_KINDS)(CLASS.key("", "a"), 7, value)
    meta = {"resourceVersion": "7", "name": "a"}
    new = {"metadata": meta, "handler": "kata"}
    old = {"metadata": meta, "spec": {"runtimeHandler": "kata"}}
    for served, expected in ((V1, new), (CLASS.served[1], new), (V1ALPHA1, old)):
        head = {"kind": "RuntimeClass", "apiVersion": served.api_version}
        assert msgspec.json.decode(CODEC.encode_item(served, item)) == expected
        written = CODEC.encode(CLASS, served, item)
        assert msgspec.json.decode(written) == {**head, **expected}
        assert written.startswith(CODEC.prefix("RuntimeClass", served.api_version))
    assert CODEC.prefix("Pod", "v1") == b'{"kind":"Pod","apiVersion":"v1",'


@pytest.mark.parametrize("is_partial", [False, True])
def test_what_a_patch_made_is_fitted(is_partial: bool) -> None:
    fit = CODEC.fit_partial if is_partial else CODEC.fit_type
    pod = {
        "kind": "Pod", "apiVersion": "v1", "odd": 1, "metadata": {"labels": None},
        "spec": {"containers": [{"name": "c"}], "overhead": {"cpu": "0.5"}},
    }  # fmt: skip
    reasons = fit("io.k8s.api.core.v1.Pod", pod)
    assert reasons.complaints == ['unknown field "odd"']
    assert not {"kind", "apiVersion", "odd"} & set(reasons.obj)
    assert reasons.obj["spec"]["overhead"] == {"cpu": "500m"}
    container = {"name": "c"} if is_partial else {"name": "c", "resources": {}}
    assert reasons.obj["spec"]["containers"] == [container]
    assert ("status" in reasons.obj) is not is_partial
    with pytest.raises(DecodeError):
        fit("io.k8s.api.core.v1.Pod", {"spec": 3})


def test_a_strict_refusal_names_every_complaint() -> None:
    assert strict_error("Pod", "apps/v1", ["one", "two"]).message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: one, two'
    )


def test_what_has_no_schema_is_kept_as_it_is() -> None:
    fields = {"f:data": {".": {}, "f:k": {}}, "list": [1, {"a": None}], "empty": {}}
    entry = {"manager": "m", "operation": "Update", "fieldsV1": fields}
    decoded = _decode(MAP, {"metadata": {"name": "a", "managedFields": [entry]}})
    assert decoded.obj["metadata"]["managedFields"] == [entry]
    assert decoded.complaints == []
