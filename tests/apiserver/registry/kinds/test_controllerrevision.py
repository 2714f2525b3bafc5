"""ControllerRevisions."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.kind import Obj
from tests.apiserver.registry.kinds.rows import columns, row
from tests.apiserver.registry.rules import (
    KINDS,
    changed,
    changes,
    creations,
    decoded,
)

KIND = "ControllerRevision"
NEGATIVE = "revision: Invalid value: -1: must be greater than or equal to 0"


test_creation = creations(
    KIND,
    [
        ({"revision": -1}, NEGATIVE),
        ({"data": None}, "data: Required value: data is mandatory"),
        ({"data": [1]}, "data: Required value: data must be a valid JSON object"),
        ({"data": "x"}, "data: Required value: data must be a valid JSON object"),
    ],
    is_exact=True,
)


def test_empty_values_in_the_data_are_kept() -> None:
    data: Obj = {"spec": {"template": {}, "list": [], "null": None}}
    assert decoded(KINDS[KIND], changed(KIND, {"data": data}))["data"] == data


test_update = changes(
    KIND,
    [
        ({"revision": 9}, None),
        ({"revision": -1}, NEGATIVE),
        ({"data": {"a": 1}}, 'data: Invalid value: {"a":1}: field is immutable'),
    ],
)


@pytest.mark.parametrize(
    ("owners", "shown"),
    [
        ([], "<none>"),
        ([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}], "<none>"),
        ([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": True}],
         "statefulset.apps/web"),
        ([{"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}], "pod/p"),
    ],
)  # fmt: skip
def test_row(owners: list[Any], shown: str) -> None:
    metadata = {"name": "x", "ownerReferences": owners}
    assert row(KIND, {"metadata": metadata, "revision": 3}) == ["x", shown, 3, "<unknown>"]


def test_columns() -> None:
    assert columns(KIND) == "Name Controller Revision Age |"
