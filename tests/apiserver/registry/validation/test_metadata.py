"""Metadata rules that hold for every kind, on create and on update."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.registry.rules import changed, complaint, update_complaint


def of_config_map(metadata: dict[str, Any]) -> str | None:
    obj = changed("ConfigMap")
    obj["metadata"] = metadata
    message = complaint("ConfigMap", obj)
    return None if message is None else message.partition(" is invalid: ")[2]


OWNER = {"apiVersion": "v1", "kind": "A", "name": "b", "uid": "c"}
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"name": "a.b-c"}, None),
        ({"generateName": "x-"}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "a", "generation": -1}, "metadata.generation: Invalid value: -1: must be "
         "greater than or equal to 0"),
        ({"name": "a", "labels": {"a": ""}}, None),
        ({"name": "a", "labels": {"a b": "x"}}, f'metadata.labels: Invalid value: "a b": '
         f"{QUALIFIED}"),
        ({"name": "a", "annotations": {"UPPER/x": "x"}}, None),
        ({"name": "a", "finalizers": ["example.com/x", "orphan"]}, None),
        ({"name": "a", "finalizers": ["bad"]}, 'metadata.finalizers[0]: Invalid value: "bad": '
         "name is neither a standard finalizer name nor is it fully qualified"),
        ({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]},
         'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer "orphan" '
         'and "foregroundDeletion" cannot be both set'),
        ({"name": "a", "ownerReferences": [OWNER]}, None),
        ({"name": "a", "ownerReferences": [{**OWNER, "apiVersion": ""}]},
         'metadata.ownerReferences.apiVersion: Invalid value: "": version must not be empty'),
        ({"name": "a", "ownerReferences": [{**OWNER, "kind": "Event"}]},
         'metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"b",'
         '"uid":"c"}: /v1, Kind=Event is disallowed from being an owner'),
        ({"name": "a", "managedFields": [{"manager": "m", "operation": "Patch"}]},
         'metadata.managedFields[0].operation: Invalid value: "Patch": must be `Apply` or '
         "`Update`"),
        ({"name": "a", "managedFields": [{"manager": "m" * 129, "operation": "Apply"}]},
         "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes"),
        ({"name": "a", "managedFields": [{"operation": "Apply", "fieldsType": "X"}]},
         'metadata.managedFields[0].fieldsType: Invalid value: "X": must be `FieldsV1`'),
    ],
)  # fmt: skip
def test_new_metadata(metadata: dict[str, Any], says: str | None) -> None:
    assert of_config_map(metadata) == says


def test_labels_and_annotations_have_their_limits() -> None:
    assert of_config_map({"name": "a", "labels": {"k": "v" * 64}}) == (
        f'metadata.labels: Invalid value: "{"v" * 64}": must be no more than 63 bytes'
    )
    largest = {"name": "a", "annotations": {"k": "x" * 262143}}
    assert of_config_map(largest) is None
    big = {"name": "a", "annotations": {"k": "x" * 262144}}
    assert of_config_map(big) == (
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    )


def test_only_one_owner_controls() -> None:
    owners = [{**OWNER, "controller": True}, {**OWNER, "name": "d", "controller": True}]
    message = of_config_map({"name": "a", "ownerReferences": owners})
    assert message is not None
    assert message.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for '
        "A/b and A/d"
    )


DELETING = {
    "metadata.deletionTimestamp": "2026-01-01T00:00:00Z",
    "metadata.finalizers": ["a.b/c", "a.b/d"],
}


@pytest.mark.parametrize(
    ("finalizers", "says"),
    [
        (["a.b/c", "a.b/d"], None),
        (["a.b/d"], None),
        ([], None),
        (
            ["a.b/c", "a.b/new"],
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being "
            'deleted, found new finalizers []string{"a.b/new"}',
        ),
    ],
)
def test_an_object_on_its_way_out_only_loses_finalizers(
    finalizers: list[str], says: str | None
) -> None:
    old = changed("ConfigMap", DELETING)
    new = changed("ConfigMap", DELETING | {"metadata.finalizers": finalizers})
    assert update_complaint("ConfigMap", new, old) == says
