"""What a patch's body is before it is laid over an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage.api import bounds
from moorage.api.errors import BadRequestError, InvalidError
from moorage.apiserver.endpoints.patching import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    excess_of,
    parse_patch,
    settle_complaints,
)
from moorage.apiserver.registry.request import Request, User
from tests.apiserver.running_server import serving


@pytest.mark.parametrize("media", [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH])
def test_a_body_is_json(media: str) -> None:
    body = b'[{"op":"add"}]' if media == JSON_PATCH else b'{"a":{"b":1}}'
    patch, complaints = parse_patch(body, media)
    assert patch == ([{"op": "add"}] if media == JSON_PATCH else {"a": {"b": 1}})
    assert complaints == []
    prefix = "" if media == STRATEGIC_PATCH else "error decoding patch: "
    with pytest.raises(BadRequestError) as caught:
        parse_patch(b"{", media)
    assert caught.value.message.startswith(f"{prefix}json parse error")


@pytest.mark.parametrize(
    ("media", "prefix"), [(MERGE_PATCH, "error decoding patch: "), (STRATEGIC_PATCH, "")]
)
@pytest.mark.parametrize(
    ("body", "kind"), [(b"[]", "array"), (b'"a"', "string"), (b"1", "number"), (b"true", "bool")]
)
def test_a_merge_is_an_object(media: str, prefix: str, body: bytes, kind: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_patch(body, media)
    assert caught.value.message == (
        f"{prefix}json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    )
    assert parse_patch(body, JSON_PATCH)[0] in ([], "a", 1)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b'{"a":1,"a":2}', ["a"]),
        (b'{"a":{"b":1,"c":{"d":1,"d":2}},"e":1,"e":2}', ["a.c.d", "e"]),
        (b'{"a":[{"b":1},{"b":1,"b":2},[{"c":1,"c":2}]]}', ["a[1].b", "a[2][0].c"]),
        (b'{"a":1,"a":2,"a":3}', ["a", "a"]),
        (b'{"a":"\\":","b":1}', []),
    ],
)
def test_repeated_keys_are_found_where_they_are(body: bytes, fields: list[str]) -> None:
    _, complaints = parse_patch(body, MERGE_PATCH)
    assert complaints == [f'duplicate field "{field}"' for field in fields]


def _deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("key", ["spec", "metadata"])
def test_an_object_is_bounded_its_managed_fields_aside(key: str) -> None:
    deep = _deep(bounds.MAX_DEPTH)
    assert excess_of({key: deep}) == bounds.TOO_DEEP
    assert excess_of({key: _deep(5), "metadata": {"managedFields": deep}}) == ""
    assert excess_of({"metadata": {"managedFields": deep, "labels": deep}}) == bounds.TOO_DEEP


@pytest.mark.parametrize("odd", [[], "text", None, {}, {"metadata": None}, {"metadata": []}])
def test_values_other_than_objects_are_bounded_too(odd: Any) -> None:
    assert excess_of(odd) == ""
    assert excess_of([_deep(bounds.MAX_DEPTH)]) == bounds.TOO_DEEP
    assert excess_of({"metadata": [_deep(bounds.MAX_DEPTH)]}) == bounds.TOO_DEEP


@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
def test_complaints_are_ignored_warned_of_or_refused(validation: str) -> None:
    def request() -> Request:
        return Request(user=User("a"), user_agent="", field_validation=validation)

    asked = request()
    settle_complaints(asked, [], lambda: "never shown")
    assert list(asked.warnings) == []
    complaints = ['unknown field "x"', 'duplicate field "y"']
    if validation == "Strict":
        with pytest.raises(InvalidError) as caught:
            settle_complaints(asked, complaints, lambda: "{}")
        why = f"strict decoding error: {', '.join(complaints)}"
        assert caught.value.message == f' "" is invalid: patch: Invalid value: "{{}}": {why}'
        assert caught.value.details == {
            "causes": [{"reason": "FieldValueInvalid",
                        "message": f'Invalid value: "{{}}": {why}', "field": "patch"}]
        }  # fmt: skip
        return
    settle_complaints(asked, complaints, lambda: "{}")
    assert list(asked.warnings) == (complaints if validation == "Warn" else [])


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (MERGE_PATCH, {"kind": "Secret"}),
        (JSON_PATCH, [{"op": "replace", "path": "/kind", "value": "Secret"}]),
    ],
)
async def test_a_patch_that_changes_the_kind(tmp_path: Path, media: str, patch: Any) -> None:
    async with serving(tmp_path) as server:
        path = "/api/v1/namespaces/default/configmaps"
        await server.ask("POST", path, {"metadata": {"name": "a"}})
        refused = await server.ask("PATCH", f"{path}/a", patch, Content_Type=media)
    assert refused.status == 422
    assert refused.json["message"].endswith(
        'no kind "Secret" is registered for version "v1" in scheme '
        '"pkg/api/legacyscheme/scheme.go:30"'
    )
