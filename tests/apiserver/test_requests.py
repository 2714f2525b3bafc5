"""What a request is about, and which ones make sense, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moorage.api import fields
from moorage.apiserver.endpoints.routing import parse_path
from moorage.apiserver.registry.kinds import ALL_KINDS
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.server.handler import (
    Subresources,
    authorized_action,
    authorized_selector,
    error_text,
    fits_path,
)

KINDS = {kind.plural: kind for kind in ALL_KINDS}


@pytest.mark.parametrize(
    ("verb", "path", "fits"),
    [
        ("create", "/api/v1/namespaces/ns/pods", True),
        ("create", "/api/v1/namespaces/ns/pods/a", False),
        ("create", "/api/v1/pods", False),
        ("create", "/api/v1/nodes", True),
        ("create", "/api/v1/nodes/a", False),
        ("update", "/api/v1/namespaces/ns/pods/a", True),
        ("update", "/api/v1/namespaces/ns/pods", False),
        ("patch", "/api/v1/nodes", False),
        ("patch", "/api/v1/nodes/a", True),
        ("get", "/api/v1/pods/a", False),
        ("get", "/api/v1/nodes/a", True),
        ("list", "/api/v1/pods", True),
        ("deletecollection", "/api/v1/namespaces/ns/pods", True),
    ],
)
def test_which_methods_fit_which_paths(verb: str, path: str, fits: bool) -> None:
    target = parse_path(path)
    call: Any = SimpleNamespace(kind=KINDS[target.resource], target=target, verb=verb)
    assert fits_path(call) is fits


@pytest.mark.parametrize(
    ("verb", "path", "selector", "action"),
    [
        ("get", "/metrics", "", Action(verb="get", path="/metrics")),
        ("list", "/api/v1/nodes", "", Action(verb="list", resource="nodes")),
        ("list", "/api/v1/nodes", "metadata.name=a",
         Action(verb="list", resource="nodes", name="a")),
        ("list", "/api/v1/nodes", "metadata.name!=a", Action(verb="list", resource="nodes")),
        ("get", "/api/v1/nodes/b", "metadata.name=a",
         Action(verb="get", resource="nodes", name="b")),
        ("update", "/apis/apps/v1/namespaces/ns/deployments/d/scale", "",
         Action(verb="update", group="apps", resource="deployments", subresource="scale",
                namespace="ns", name="d")),
    ],
)  # fmt: skip
def test_what_is_to_be_authorized(verb: str, path: str, selector: str, action: Action) -> None:
    assert authorized_action(verb, parse_path(path), fields.parse(selector)) == action


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", fields.EVERYTHING), ("odd", fields.EVERYTHING), ("a=b", fields.parse("a=b"))],
)
def test_a_selector_that_cannot_be_read_selects_everything(text: str, expected: Any) -> None:
    assert authorized_selector(text) == expected


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RecursionError(), "it is nested too deeply"),
        (OverflowError(), "a number in it is too large"),
        (UnicodeError(), "it holds text that is not UTF-8"),
    ],
)
def test_why_a_request_cannot_be_read(error: Exception, text: str) -> None:
    assert error_text(error) == text


def test_a_kinds_own_subresource_comes_before_the_shared_one() -> None:
    async def own(_: Any) -> Any: ...

    async def shared(_: Any) -> Any: ...

    table = Subresources({("pods", "status", "get"): own}, {("status", "get"): shared})
    for plural, verb, expected in (
        ("pods", "get", own), ("nodes", "get", shared), ("pods", "update", None),
    ):  # fmt: skip
        call: Any = SimpleNamespace(
            kind=KINDS[plural], target=SimpleNamespace(subresource="status"), verb=verb
        )
        assert table.find(call) is expected
