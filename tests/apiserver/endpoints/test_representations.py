"""Objects and lists, whole, as tables and as metadata."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.errors import BadRequestError
from moorage.apiserver.endpoints.negotiation import PARTIAL, PARTIAL_LIST, TABLE, Representation
from moorage.apiserver.endpoints.representations import (
    decoded_object,
    include_object,
    list_body,
    object_body,
)
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.columns.table import IncludeObject
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.listing import Listed
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.stored import StoredFactory, to_value

CODEC = Codec(load_schema())
CLASS = next(kind for kind in STORED_KINDS if kind.name == "RuntimeClass")
V1, V1ALPHA1 = CLASS.served[0], CLASS.served[-1]
FACTORY = StoredFactory(STORED_KINDS)
ITEMS = [
    FACTORY(CLASS.key("", name), revision, to_value({
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "handler": "h",
    }))
    for revision, name in ((3, "a"), (5, "b"))
]  # fmt: skip
METAS = [
    {"resourceVersion": "3", "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
    {"resourceVersion": "5", "name": "b", "creationTimestamp": "2026-01-01T00:00:00Z"},
]


def _one(form: Representation, served: Any = V1, **query: str) -> Any:
    body = object_body(CODEC, CLASS, served, ITEMS[0], form, query)
    assert body.endswith(b"}\n")
    return msgspec.json.decode(body)


def _list(form: Representation, listed: Listed, served: Any = V1, **query: str) -> Any:
    body = list_body(CODEC, CLASS, served, listed, form, query).whole()
    assert body.endswith(b"}\n")
    return msgspec.json.decode(body)


def test_whole_objects_and_lists() -> None:
    head = {"kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1"}
    assert _one(Representation()) == {**head, "metadata": METAS[0], "handler": "h"}
    assert _list(Representation(), Listed(ITEMS, 9)) == {
        "kind": "RuntimeClassList", "apiVersion": "node.k8s.io/v1",
        "metadata": {"resourceVersion": "9"},
        "items": [{"metadata": meta, "handler": "h"} for meta in METAS],
    }  # fmt: skip
    old = _list(Representation(), Listed(ITEMS[:1], 9), V1ALPHA1)
    assert old["apiVersion"] == "node.k8s.io/v1alpha1"
    assert old["items"] == [{"metadata": METAS[0], "spec": {"runtimeHandler": "h"}}]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_metadata_alone(version: str) -> None:
    api_version = f"meta.k8s.io/{version}"
    partial = {"kind": PARTIAL, "apiVersion": api_version}
    assert _one(Representation(as_=PARTIAL, version=version)) == {**partial, "metadata": METAS[0]}
    assert _list(Representation(as_=PARTIAL_LIST, version=version), Listed(ITEMS, 9)) == {
        "kind": PARTIAL_LIST, "apiVersion": api_version, "metadata": {"resourceVersion": "9"},
        "items": [{**partial, "metadata": meta} for meta in METAS],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (Listed([], 9), {"resourceVersion": "9"}),
        (Listed([], 9, "token", 3), {"resourceVersion": "9", "continue": "token",
                                     "remainingItemCount": 3}),
        (Listed([], 9, "token", 0), {"resourceVersion": "9", "continue": "token",
                                     "remainingItemCount": 0}),
        (Listed([], 9, "token", None), {"resourceVersion": "9", "continue": "token"}),
        (Listed([], 9, "", 3), {"resourceVersion": "9"}),
    ],
)  # fmt: skip
def test_the_metadata_of_a_list(listed: Listed, expected: dict[str, Any]) -> None:
    for form in (Representation(), Representation(as_=PARTIAL_LIST), Representation(as_=TABLE)):
        assert _list(form, listed)["metadata"] == expected


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_tables(version: str) -> None:
    form = Representation(as_=TABLE, version=version)
    one, both = _one(form), _list(form, Listed(ITEMS, 9))
    for table, count, revision in ((one, 1, "3"), (both, 2, "9")):
        assert (table["kind"], table["apiVersion"]) == ("Table", f"meta.k8s.io/{version}")
        assert table["metadata"] == {"resourceVersion": revision}
        assert [column["name"] for column in table["columnDefinitions"]] == [
            "Name", "Handler", "Age",
        ]  # fmt: skip
        assert [row["cells"][:2] for row in table["rows"]] == [["a", "h"], ["b", "h"]][:count]
        assert [row["object"]["metadata"] for row in table["rows"]] == METAS[:count]
        assert {row["object"]["kind"] for row in table["rows"]} == {PARTIAL}
    whole = _one(form, includeObject="Object")["rows"][0]["object"]
    assert whole == {"kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1", "metadata": METAS[0],
                     "handler": "h"}  # fmt: skip
    assert whole == decoded_object(CLASS, V1, ITEMS[0])
    assert not _list(form, Listed(ITEMS, 9), includeObject="None")["rows"][1].get("object")


@pytest.mark.parametrize(
    ("wanted", "policy"),
    [("", IncludeObject.METADATA), ("Metadata", IncludeObject.METADATA),
     ("None", IncludeObject.NONE), ("Object", IncludeObject.OBJECT)],
)  # fmt: skip
def test_what_rows_carry(wanted: str, policy: IncludeObject) -> None:
    assert include_object({"includeObject": wanted}) is policy
    assert include_object({}) is IncludeObject.METADATA


def test_unknown_include_object_is_rejected() -> None:
    with pytest.raises(BadRequestError, match="must be 'Metadata', 'Object'"):
        include_object({"includeObject": "object"})
