"""JSON patch: the operations, and one refusal for all that cannot be done."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.errors import BadRequestError, InvalidError
from moorage.apiserver.registry.patch import apply_json_patch
from tests.apiserver.registry.patch.test_merge import JSON

DOCUMENT = {"metadata": {"name": "a", "labels": {"x": "1"}}, "list": [1, 2, 3]}


def operation(op: str, path: str, **rest: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **rest}


@pytest.mark.parametrize(
    ("operations", "at", "value"),
    [
        ([operation("add", "/metadata/labels/y", value="2")], ("metadata", "labels"),
         {"x": "1", "y": "2"}),
        ([operation("add", "/list/1", value=9)], ("list",), [1, 9, 2, 3]),
        ([operation("add", "/list/-", value=9)], ("list",), [1, 2, 3, 9]),
        ([operation("remove", "/list/0")], ("list",), [2, 3]),
        ([operation("replace", "/metadata/name", value="b")], ("metadata", "name"), "b"),
        ([operation("replace", "/metadata/new", value="b")], ("metadata", "new"), "b"),
        ([operation("move", "/metadata/labels/z", **{"from": "/metadata/labels/x"})],
         ("metadata", "labels"), {"z": "1"}),
        ([operation("copy", "/metadata/labels/z", **{"from": "/metadata/labels/x"})],
         ("metadata", "labels"), {"x": "1", "z": "1"}),
        ([operation("test", "/metadata/name", value="a"),
          operation("replace", "/metadata/name", value="b")], ("metadata", "name"), "b"),
        ([operation("add", "/metadata/labels/a~1b~0c", value="v")], ("metadata", "labels"),
         {"x": "1", "a/b~c": "v"}),
        ([], (), DOCUMENT),
    ],
)  # fmt: skip
def test_an_operation(operations: list[dict[str, Any]], at: tuple[str, ...], value: Any) -> None:
    before = copy.deepcopy(DOCUMENT)
    patched = apply_json_patch(before, operations)
    for step in at:
        patched = patched[step]
    assert patched == value
    assert before == DOCUMENT


@pytest.mark.parametrize(
    "operations",
    [
        [operation("test", "/metadata/name", value="z")],
        [operation("remove", "/metadata/nope")],
        [operation("remove", "/list/7")],
        [operation("add", "/nope/x", value=1)],
        [operation("replace", "/nope/x", value=1)],
        [operation("replace", "/list/9", value=1)],
        [operation("add", "/list/x", value=1)],
        [operation("x", "/metadata")],
        [{"op": "add", "value": 1}],
        [{"path": "/metadata"}],
        [operation("add", "/metadata/y")],
        [operation("copy", "/a", **{"from": "/nope"})],
        [{"op": "add", "path": 5, "value": 1}],
        [{"op": ["add"], "path": "/a", "value": 1}],
        [operation("add", "metadata", value=1)],
    ],
)
def test_failed_operation_rejects_the_patch(operations: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidError) as refusal:
        apply_json_patch(DOCUMENT, operations)
    assert refusal.value.message == "the server rejected our request due to an error in our request"
    assert refusal.value.details == {}


@pytest.mark.parametrize("patch", [{}, "x", None, [1], [[]]])
def test_a_patch_is_a_list_of_operations(patch: Any) -> None:
    with pytest.raises(BadRequestError, match="error decoding patch"):
        apply_json_patch(DOCUMENT, patch)


def test_copies_of_copies_do_not_eat_the_server() -> None:
    bomb = [operation("add", "/a", value=["x" * 1000])]
    bomb += [operation("copy", "/a/-", **{"from": "/a"})] * 40
    with pytest.raises(InvalidError):
        apply_json_patch({}, bomb)


PATHS = st.sampled_from(["", "/", "/a", "/a/0", "/b/-", "/a/b", "x", "/a~", "/-1", "/01"])
OPERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]) | JSON,
        "path": PATHS | JSON,
        "from": PATHS | JSON,
        "value": JSON,
    },
)


@given(JSON, st.lists(OPERATIONS, max_size=4))
def test_no_patch_breaks_the_server(document: Any, operations: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(document)
    with suppress(InvalidError):
        apply_json_patch(document, operations)
    assert document == before
