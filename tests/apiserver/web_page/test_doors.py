"""Doors of the page: which requests are let in, and whose token they bring."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.errors import ForbiddenError, NotFoundError, UnauthorizedError
from moorage.apiserver.web_page.doors import KeyDoor, TokenDoor, Visit, token_of
from moorage.wire.client.config import ClientConfig

_KEY = "k" * 32
_HOST = "127.0.0.1:8080"


def basic(password: str, user: str = "me") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("authorization", "token"),
    [
        ("Bearer abc.DEF-1_2~+/==", "abc.DEF-1_2~+/=="),
        ("bearer  abc ", "abc"),
        (basic("abc"), "abc"),
        (basic("abc\n"), "abc"),
        (basic("abc", user=""), "abc"),
        ("", None),
        ("Bearer", None),
        ("Bearer a b", None),
        ("Bearer a\r\nHost: x", None),
        ("Basic !", None),
        ("Basic é", None),
        ("Basic \udce9", None),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), None),
        ("Basic " + base64.b64encode(b"no-password").decode(), None),
        ("Negotiate abc", None),
    ],
)
def test_the_token_is_a_bearer_token_or_a_password(authorization: str, token: str | None) -> None:
    assert token_of(authorization) == token


@given(st.text())
def test_any_header_has_a_token_of_plain_letters_or_none(authorization: str) -> None:
    token = token_of(authorization)
    assert token is None or (token.isascii() and token.isprintable() and " " not in token)


def key_door() -> KeyDoor:
    return KeyDoor(cast(Any, None), _KEY)


@pytest.mark.parametrize(
    ("path", "below"), [("/ui/", "/"), ("/ui", ""), ("/ui/classes/a", "/classes/a")]
)
def test_the_key_in_the_address_lets_its_user_in(path: str, below: str) -> None:
    assert key_door().path_of(Visit(f"/{_KEY}{path}", _HOST)) == below


@pytest.mark.parametrize("path", ["", "/", "/ui/", f"/{_KEY}", f"/{_KEY}/uix", "/kk/ui/", "/é/ui/"])
def test_addresses_without_the_key_lead_nowhere(path: str) -> None:
    with pytest.raises(NotFoundError):
        key_door().path_of(Visit(path, _HOST))


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:8080", "127.0.0.1.evil.example"]
)
def test_names_that_resolve_to_loopback_are_refused(host: str) -> None:
    with pytest.raises(ForbiddenError):
        key_door().path_of(Visit(f"/{_KEY}/ui/", host))


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:65535", "LOCALHOST:80"])
def test_any_port_of_loopback_is_let_in_as_tunnels_have_their_own(host: str) -> None:
    assert key_door().path_of(Visit(f"/{_KEY}/ui/", host)) == "/"


async def test_a_request_without_a_token_reads_nothing() -> None:
    door = TokenDoor(ClientConfig(server="http://127.0.0.1:1"))
    with pytest.raises(UnauthorizedError, match="kubectl port-forward"):
        async with door.reader(Visit("/ui/", _HOST)):
            raise AssertionError
