"""Options of lists, continue tokens and revisions, without a store."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from moorage.api.errors import BadRequestError, InvalidError, StatusError
from moorage.registry import listing
from moorage.registry.listing import ListOptions, parse_revision, too_large


@pytest.mark.parametrize(
    "options",
    [
        {}, {"limit": 5}, {"continue_": "t"}, {"continue_": "t", "resource_version": "0"},
        {"resource_version": "7"}, {"resource_version": "7", "match": "Exact"},
        {"resource_version": "0", "match": "NotOlderThan"},
    ],
)  # fmt: skip
def test_options_that_go_together(options: dict[str, Any]) -> None:
    listing._check(ListOptions(**options))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"limit": -1}, BadRequestError, "invalid limit"),
        ({"continue_": "t", "resource_version": "7"}, BadRequestError,
         "specifying resource version is not allowed when using continue"),
        ({"match": "Exact"}, InvalidError,
         "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless "
         "resourceVersion is provided"),
        ({"continue_": "t", "resource_version": "0", "match": "NotOlderThan"}, InvalidError,
         "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for continue"),
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
        listing._check(ListOptions(**options))
    if error is InvalidError:
        message = f'ListOptions.meta.k8s.io "" is invalid: {message}'
    assert caught.value.message == message


@pytest.mark.parametrize("key", ["a", "ns/a", "ns/é", "ns/..a", "x" * 17])
def test_a_token_leads_behind_its_key(key: str) -> None:
    token = listing._encode_token(7, key)
    assert not set(token) & set("+/=")
    result = listing._decode_token(token)
    assert (result.rv, result.start) == (7, key)


def _token(**changes: Any) -> str:
    fields = {"v": "meta.k8s.io/v1", "rv": 7, "start": "ns/a\0", **changes}
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()


@pytest.mark.parametrize(
    "text",
    ["%", "a", "e30", _token(v="v9"), _token(start="../a\0"), _token(start="ns/../a"),
     _token(rv="7"), base64.urlsafe_b64encode(b"[]").decode()],
)  # fmt: skip
def test_invalid_continue_token_is_rejected(text: str) -> None:
    with pytest.raises(BadRequestError, match="invalid continue token: continue key is not valid"):
        listing._decode_token(text)
    assert listing._decode_token(_token()).start == "ns/a"


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
