"""Fields of new objects: remembered ones are those that are computed."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from moorage.apiserver.registry.patch import Change, CreatedFields, Manager, MergeSchema
from moorage.apiserver.registry.patch.fieldset import in_order
from moorage.apiserver.registry.schema import load_schema

SCHEMA = MergeSchema(load_schema())
POD: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "default", "uid": "1", "labels": {"b": "1", "a": "2"}},
    "spec": {"containers": [{"name": "z", "image": "i", "env": [{"name": "E", "value": "1"}]}]},
    "status": {"phase": "Pending"},
}


def change(type_name: str = "io.k8s.api.core.v1.Pod", *, subresource: bool = False) -> Change:
    manager = Manager("tests", "Update", "v1", "status" if subresource else "")
    ignored: dict[str, Any] = {} if subresource else {"f:status": {}}
    return Change(SCHEMA, type_name, manager, "2026-01-01T00:00:00Z", ignored, lambda _: None)


def changed(**values: Any) -> dict[str, Any]:
    return {**copy.deepcopy(POD), **values}


def test_the_fields_of_a_pod() -> None:
    (entry,) = CreatedFields().entries(change(), POD)
    labels: dict[str, Any] = {".": {}, "f:a": {}, "f:b": {}}
    item: dict[str, Any] = {
        ".": {},
        "f:env": {".": {}, 'k:{"name":"E"}': {".": {}, "f:name": {}, "f:value": {}}},
        "f:image": {},
        "f:name": {},
    }
    fields = {
        "f:metadata": {"f:labels": labels},
        "f:spec": {"f:containers": {'k:{"name":"z"}': item}},
    }
    assert entry["fieldsV1"] == fields
    assert msgspec.json.encode(entry["fieldsV1"]) == msgspec.json.encode(in_order(fields))


def test_an_item_with_several_keys_has_those_that_it_leaves_out_with_their_default() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}]
    pod = changed(spec={"containers": [{"name": "z", "ports": ports}]})
    (entry,) = CreatedFields().entries(change(), pod)
    item = entry["fieldsV1"]["f:spec"]["f:containers"]['k:{"name":"z"}']
    assert [key for key in item["f:ports"] if key != "."] == [
        'k:{"containerPort":53,"protocol":"UDP"}',
        'k:{"containerPort":80,"protocol":"TCP"}',
    ]


@pytest.mark.parametrize(
    ("obj", "of"),
    [
        (POD, change()),
        (changed(metadata={"name": "b", "annotations": {"x": "y"}}), change()),
        (changed(spec={"containers": [{"name": "y", "image": "i"}]}), change()),
        (changed(spec={"nodeName": "", "tolerations": []}), change()),
        (POD, change(subresource=True)),
        (POD, change("io.k8s.api.core.v1.PersistentVolume")),
        ({"metadata": {"name": "a"}}, change()),
        ({"spec": {"nodeName": "n"}}, change()),
    ],
)
def test_what_is_remembered_does_not_change_the_fields(obj: dict[str, Any], of: Change) -> None:
    created = CreatedFields()
    for earlier in (POD, obj, changed(metadata={"name": "c"})):
        for earlier_of in (change(), change(subresource=True), of):
            created.entries(earlier_of, earlier)
    assert created.entries(of, obj) == CreatedFields().entries(of, obj)


def test_what_is_remembered_is_bounded() -> None:
    created = CreatedFields()
    for number in range(1000):
        created.entries(change(), changed(spec={"nodeName": f"n{number}"}))
    assert len(created) <= 256
    created.forget()
    for length in (1024, 4096):
        created.entries(change(), changed(spec={"nodeName": "n" * length}))
        assert len(created) == 1, "an object of more than 2 KiB is not remembered"
    created.forget()
    assert not len(created)
