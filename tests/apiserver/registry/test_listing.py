"""Options of lists, continue tokens and revisions, without a store."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from moorage.api.errors import BadRequestError, InvalidError, StatusError
from moorage.apiserver.registry.listing import (
    ListOptions,
    check_options,
    decode_token,
    encode_token,
    parse_revision,
    too_large,
)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"limit": 5}, {"continue_": "t"}, {"continue_": "t", "resource_version": "0"},
        {"resource_version": "7"}, {"resource_version": "7", "match": "Exact"},
        {"resource_version": "0", "match": "NotOlderThan"},
    ],
)  # fmt: skip
def test_options_that_go_together(options: dict[str, Any]) -> None:
    check_options(ListOptions(**options))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"limit": -1}, BadRequestError, "invalid limit"),
        ({"continue_": "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Nywic3RhcnQiOiJhIn0",
          "resource_version": "7"}, BadRequestError,
         "specifying resource version is not allowed when using continue"),
        ({"match": "Exact"}, InvalidError,
         "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless "
         "resourceVersion is provided"),
        ({"continue_": "t", "resource_version": "0", "match": "NotOlderThan"}, InvalidError,
         "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is "
         "provided"),
        ({"resource_version": "7", "match": "Odd"}, InvalidError,
         'resourceVersionMatch: Unsupported value: "Odd": supported values: "Exact", '
         '"NotOlderThan", ""'),
        ({"resource_version": "0", "match": "Exact"}, InvalidError,
         'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for '
         'resourceVersion "0"'),
    ],
)  # fmt: skip
def test_options_that_do_not(
    options: dict[str, Any], error: type[StatusError], message: str
) -> None:
    with pytest.raises(error) as caught:
        check_options(ListOptions(**options))
    if error is InvalidError:
        message = f'ListOptions.meta.k8s.io "" is invalid: {message}'
    assert caught.value.message == message


@pytest.mark.parametrize("key", ["a", "ns/a", "ns/é", "ns/..a", "x" * 17])
def test_a_token_leads_behind_its_key(key: str) -> None:
    token = encode_token(7, key)
    assert not set(token) & set("+/=")
    result = decode_token(token)
    assert (result.rv, result.start) == (7, key)


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("latin-1")).decode().rstrip("=")


def _token(**changes: Any) -> str:
    fields = {"v": "meta.k8s.io/v1", "rv": 7, "start": "ns/a\0", **changes}
    return _encoded(json.dumps(fields))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("%", ": illegal base64 data at input byte 0"),
        ("ab=", ": illegal base64 data at input byte 2"),
        ("a", ": illegal base64 data at input byte 0"),
        ("xx", ": invalid character 'Ç' looking for beginning of value"),
        ("IA", ": unexpected end of JSON input"),
        ("e30", ": server does not recognize this encoded version "),
        ("bnVsbA", ": server does not recognize this encoded version "),
        (_token(v="v9"), ": server does not recognize this encoded version v9"),
        (_token(rv=0), ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (_token(start=""), ": encoded start key empty (version meta.k8s.io/v1)"),
        (_token(start="../a"), ": ../a"),
        (_token(start="ns/../a"), ": ns/../a"),
        (_token(rv="7"), ": json: cannot unmarshal a field of storage.continueToken"),
        (_encoded("[]"),
         ": json: cannot unmarshal array into Go value of type storage.continueToken"),
        (_encoded('"x"'),
         ": json: cannot unmarshal string into Go value of type storage.continueToken"),
    ],
)  # fmt: skip
def test_invalid_continue_token_is_rejected(text: str, why: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        decode_token(text)
    assert caught.value.message == f"invalid continue token: continue key is not valid{why}"
    assert decode_token(_token()).start == "ns/a"


@pytest.mark.parametrize(("text", "revision"), [("", 0), ("0", 0), ("17", 17)])
def test_revisions(text: str, revision: int) -> None:
    assert parse_revision(text) == parse_revision(text, is_list=True) == revision


@pytest.mark.parametrize("text", ["x", "-1", str(2**64)])
def test_invalid_revision_is_rejected(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"^invalid resource version: resourceVersion: Inv"):
        parse_revision(text, is_list=True)
    with pytest.raises(StatusError, match=r"^resourceVersion: Invalid value") as caught:
        parse_revision(text)
    assert caught.value.status_code == 500


def test_a_revision_that_has_not_happened_yet() -> None:
    error = too_large(9, 7)
    assert error.message == "Timeout: Too large resource version: 9, current: 7"
    assert error.details == {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    assert error.status_code == 504
