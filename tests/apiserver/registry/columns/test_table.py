"""The Table around the rows."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.columns.table import (
    IncludeObject,
    bookmark_table,
    render_table,
    row_table,
)
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.kinds.runtimeclass import RUNTIME_CLASS

OBJ = {"metadata": {"name": "gvisor", "resourceVersion": "7"}, "handler": "runsc"}


def table(include: IncludeObject = IncludeObject.METADATA, **options: Any) -> dict[str, Any]:
    return render_table(
        RUNTIME_CLASS.printer, [OBJ], now=0.0, include=include,
        list_metadata={"resourceVersion": "9"}, version=options.pop("version", "v1"), **options,
    )  # fmt: skip


def test_a_list_is_one_table() -> None:
    rows = table()
    assert rows["kind"] == "Table"
    assert rows["apiVersion"] == "meta.k8s.io/v1"
    assert rows["metadata"] == {"resourceVersion": "9"}
    assert [column["name"] for column in rows["columnDefinitions"]] == ["Name", "Handler", "Age"]
    assert rows["columnDefinitions"][0]["format"] == "name"
    assert rows["columnDefinitions"][1] == {
        "name": "Handler", "type": "string", "format": "", "description": "", "priority": 0,
    }  # fmt: skip
    assert rows["rows"] == [
        {
            "cells": ["gvisor", "runsc", "<unknown>"],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": OBJ["metadata"],
            },
        }
    ]


def test_rows_carry_as_much_of_their_object_as_asked() -> None:
    assert table(IncludeObject.NONE)["rows"][0]["object"] is None
    whole = table(IncludeObject.OBJECT, as_served=lambda obj: {"kind": "RuntimeClass", **obj})
    assert whole["rows"][0]["object"] == {"kind": "RuntimeClass", **OBJ}
    old = table(version="v1beta1")
    assert old["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


@pytest.mark.parametrize("has_columns", [True, False])
def test_an_events_table_has_one_row_and_its_objects_revision(has_columns: bool) -> None:
    table_ = row_table(RUNTIME_CLASS.printer, OBJ, now=0.0, include=IncludeObject.NONE,
                       version="v1", has_columns=has_columns)  # fmt: skip
    assert table_["metadata"] == {"resourceVersion": "7"}
    assert (table_["columnDefinitions"] is not None) is has_columns
    assert len(table_["rows"]) == 1


@pytest.mark.parametrize("kind", STORED_KINDS, ids=lambda kind: kind.name)
def test_every_kind_can_show_a_bookmark(kind: Any) -> None:
    table_ = bookmark_table(kind.printer, {"metadata": {"resourceVersion": "7"}}, version="v1")
    assert table_["metadata"] == {"resourceVersion": "7"}
    assert table_["columnDefinitions"] is None


def test_a_kind_without_printer_shows_when_it_was_made() -> None:
    table_ = render_table(None, [OBJ], now=0.0, include=IncludeObject.NONE, list_metadata={},
                          version="v1")  # fmt: skip
    assert [column["name"] for column in table_["columnDefinitions"]] == ["Name", "Created At"]
    assert table_["columnDefinitions"][1]["type"] == "date"
