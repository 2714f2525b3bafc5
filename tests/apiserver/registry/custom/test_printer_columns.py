"""Additional printer columns: JSONPaths and cells."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.custom.printer_columns import PathError, compile_path, printer_of

OBJECT: dict[str, Any] = {
    "metadata": {
        "name": "n",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"a.b/c": "d"},
    },
    "spec": {"replicas": 3, "items": [{"name": "x", "n": 1}, {"name": "y", "n": 2}]},
    "status": {
        "conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}]
    },
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.replicas", 3),
        ("{.spec.replicas}", 3),
        ("$.spec.replicas", 3),
        (".spec.items[0].name", "x"),
        (".spec.items[-1].name", "y"),
        (".spec.items[5].name", None),
        (".spec.items[*].name", "x"),
        (".metadata.labels['a.b/c']", "d"),
        (r".metadata.labels.a\.b/c", "d"),
        ('.status.conditions[?(@.type=="Ready")].status', "True"),
        (".status.conditions[?(@.type=='A')].status", "False"),
        (".spec.items[?(@.n>1)].name", "y"),
        (".spec.items[?(@.n)].name", "x"),
        (".spec.items[?(@.absent)].name", None),
        ('.spec.items[?(@.n=="1")].name', None),
        (".spec.replicas.below", None),
        (".absent", None),
        ("", OBJECT),
    ],
)
def test_first_value_at_a_path(path: str, value: Any) -> None:
    assert compile_path(path)(OBJECT) == value


@pytest.mark.parametrize("path", [".spec[", "spec", ".a[?(@.b==c)]", ".a[x]", "[]", ".a" * 300])
def test_malformed_path_is_refused(path: str) -> None:
    with pytest.raises(PathError):
        compile_path(path)


def _column(kind: str, path: str) -> dict[str, Any]:
    return {"name": kind.title(), "type": kind, "jsonPath": path}


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("string", ".metadata.name", "n"),
        ("string", ".spec.replicas", "3"),
        ("string", ".spec.items[0]", '{"name":"x","n":1}'),
        ("string", ".absent", None),
        ("integer", ".spec.replicas", 3),
        ("integer", ".metadata.name", None),
        ("number", ".spec.replicas", 3),
        ("boolean", ".spec.replicas", None),
        ("date", ".metadata.creationTimestamp", "10s"),
        ("date", ".metadata.name", "<invalid>"),
        ("date", ".spec.replicas", None),
    ],
)
def test_cells(kind: str, path: str, cell: Any) -> None:
    printer = printer_of([_column(kind, path)])
    assert printer.cells(OBJECT, 1767225610.0) == ["n", cell]
    assert [column.name for column in printer.columns] == ["Name", kind.title()]
    assert printer.columns[1].description == (
        f"Custom resource definition column (in JSONPath format): {path}"
    )


def test_age_is_the_column_of_a_kind_without_columns() -> None:
    printer = printer_of([])
    assert [(column.name, column.type) for column in printer.columns] == [
        ("Name", "string"), ("Age", "date"),
    ]  # fmt: skip
    assert printer.cells(OBJECT, 1767225610.0) == ["n", "10s"]
