"""Constructions: what is rewritten, what stays, and where errors are shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.cel.construction import (
    ConstructionError,
    rewrite,
    type_mismatches,
    without_types,
)
from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.library.declaring import Type
from moorage.apiserver.cel.program import CompileError, Program

ENVIRONMENT = make_environment({"object": Type.DYN})


def construct(expression: str, obj: Any = None) -> Any:
    program = Program(ENVIRONMENT, expression, has_constructions=True)
    return without_types(program.evaluate({"object": obj}))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("Object{}", {}),
        ("Object{spec: Object.spec{replicas: 3, paused: false}}",
         {"spec": {"replicas": 3, "paused": False}}),
        ("Object{\n  spec : // why\n  Object . spec {\n a: [1, 'b', {'c': 2}]\n}}",
         {"spec": {"a": [1, "b", {"c": 2}]}}),
        ("Object{?a: optional.none(), ?b: optional.of(1), c: 2,}", {"b": 1, "c": 2}),
        ("object ? Object{a: 1} : Object{b: 'x'}", {"a": 1}),
        ("Object{a: object ? 1 : 2}", {"a": 1}),
        ("[Object.x{n: 1}, Object.x{n: 'y'}].map(o, o)", [{"n": 1}, {"n": "y"}]),
        ("cel.bind(Objects, 1, {'Object{': Objects})", {"Object{": 1}),
        ("['Object{a: 1}', r\"\\Object{\", '''it's Object{'''] // Object{",
         ["Object{a: 1}", "\\Object{", "it's Object{"]),
        ("[JSONPatch{op: 'add', path: object ? '/a' : '/b', value: {'k': [1]}}]",
         [{"op": "add", "path": "/a", "value": {"k": [1]}}]),
        ("Object{a: {'x': 1}.size(), b: [1, 2].indexOf(2), c: 'abc'.lastIndexOf('c')}",
         {"a": 1, "b": 1, "c": 2}),
        ("has(Object{spec: 1}.spec) && !has(Object{spec: 1}.status)", True),
        ("Object{spec: 1} == Object{spec: 1} && Object{} != Object.spec{}", True),
    ],
)  # fmt: skip
def test_constructions_are_maps(expression: str, value: Any) -> None:
    assert construct(expression, obj=True) == value


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("Object{spec: Object.spec{replicas: absent}}",
         "ERROR: <input>:1:36: undeclared reference to 'absent' (in container '')\n"
         " | Object{spec: Object.spec{replicas: absent}}\n"
         " | ...................................^"),
        ("Object{\n  a: [1].indexOf(zz)\n}",
         "ERROR: <input>:2:18: undeclared reference to 'zz' (in container '')\n"
         " |   a: [1].indexOf(zz)\n"
         " | .................^"),
        ("[JSONPatch{op: 'add', pth: '/a'}]",
         "ERROR: <input>:1:23: undefined field 'pth'\n"
         " | [JSONPatch{op: 'add', pth: '/a'}]\n"
         " | ......................^"),
    ],
)  # fmt: skip
def test_errors_are_shown_in_the_text_as_it_was_written(expression: str, error: str) -> None:
    with pytest.raises(CompileError) as caught:
        construct(expression)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "expression",
    ["Object{a: 1", "Object{a}", "Object{a: }", "Object{1: 2}", "JSONPatch{op: 1}", "Object.{}",
     "Object{a: 1}}", "}", "JSONPatch.x{}"],
)  # fmt: skip
def test_what_is_no_construction_does_not_compile(expression: str) -> None:
    with pytest.raises(CompileError):
        construct(expression)


def test_other_expressions_have_no_constructions() -> None:
    with pytest.raises(CompileError):
        Program(ENVIRONMENT, "Object{a: 1}")


PIECES = ("Object", "JSONPatch", ".", "spec", "{", "}", "[", "]", "(", ")", ":", ",", "?", "'", '"',
          "\\", "\n", " ", "op", "indexOf", "//", "r", "'''", "1")  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_is_rewritten_or_refused_and_has_a_place_for_every_error(text: str) -> None:
    offset = 0
    try:
        rewritten = rewrite(text, has_constructions=True)
    except ConstructionError as error:
        offset, rewritten = error.offset, rewrite("")
    assert 0 <= offset <= len(text)
    lines = rewritten.text.split("\n")
    for line, content in enumerate(lines):
        shown = rewritten.original_error(f"ERROR: <input>:{line + 1}:{len(content) + 1}: x")
        assert shown.startswith("ERROR: <input>:") or rewritten.text == rewritten.source


@pytest.mark.parametrize(
    ("expression", "mismatches"),
    [
        ("Object{spec: Object.spec{a: [Object.spec.a{}]}}", 0),
        ("Object{spec: {'x': Object.spec{}}}", 0),
        ("Object{spec: Object.status{}}", 1),
        ("Object{spec: Object.spec{a: [Object.spec{}, Object{}]}}", 2),
    ],
)
def test_types_name_the_path_of_their_field(expression: str, mismatches: int) -> None:
    value = Program(ENVIRONMENT, expression, has_constructions=True).evaluate({"object": None})
    assert len(list(type_mismatches(value))) == mismatches
