from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from moorage.api.configuration import Secret
from moorage.node.images.credentials import SecretFormatError, credentials_in, matching
from moorage.wire.cri.reference import parse


def a_secret(auths: Any, *, is_old: bool = False) -> Secret:
    document = auths if is_old else {"auths": auths}
    kind, key = (
        ("kubernetes.io/dockercfg", ".dockercfg")
        if is_old
        else ("kubernetes.io/dockerconfigjson", ".dockerconfigjson")
    )
    text = document if isinstance(document, str) else json.dumps(document)
    return Secret(type=kind, data={key: base64.b64encode(text.encode()).decode()})


def users(image: str, *registries: str) -> list[str]:
    """Who is tried for an image; each registry's user is named after it."""
    secret = a_secret(
        {registry: {"username": registry, "password": "x"} for registry in registries}
    )
    return [
        credential.auth.username for credential in matching(credentials_in(secret), parse(image))
    ]


@pytest.mark.parametrize(
    ("registry", "image", "fits"),
    [
        ("registry.example", "registry.example/app", True),
        ("https://registry.example/v1/", "registry.example/app", True),
        ("http://registry.example", "registry.example/app", True),
        ("registry.example", "other.example/app", False),
        ("registry.example", "registry.example:5000/app", False),
        ("registry.example:5000", "registry.example:5000/app", True),
        ("*.example", "registry.example/app", True),
        ("*.example", "a.registry.example/app", False),
        ("reg*.example", "registry.example/app", True),
        ("registry.example/team", "registry.example/team/app", True),
        ("registry.example/team", "registry.example/teams/app", False),
        ("registry.example/team", "registry.example/other/app", False),
        ("https://index.docker.io/v1/", "busybox", True),
        ("docker.io", "team/app", True),
    ],
)
def test_which_fit(registry: str, image: str, fits: bool) -> None:
    assert users(image, registry) == ([registry] if fits else [])


def test_the_most_specific_come_first() -> None:
    names = users("r.example/team/app", "r.example", "r.example/team", "*.example", "q.example")
    assert names == ["r.example/team", "r.example", "*.example"]


@pytest.mark.parametrize("is_old", [True, False])
def test_forms_of_a_credential(is_old: bool) -> None:
    auths = {
        "a.example": {"auth": base64.b64encode(b"me:pass:word").decode()},
        "b.example": {"identitytoken": "id", "registrytoken": "reg"},
    }
    one, other = credentials_in(a_secret(auths, is_old=is_old))
    assert (one.auth.username, one.auth.password) == ("me", "pass:word")
    assert (other.auth.identity_token, other.auth.registry_token) == ("id", "reg")


@pytest.mark.parametrize(
    "secret",
    [
        a_secret("not json", is_old=True),
        a_secret({"a.example": {"auth": "abc"}}),
        Secret(type="kubernetes.io/dockercfg", data={".dockercfg": "!"}),
        Secret(type="kubernetes.io/dockercfg", data={".dockercfg": "W10="}),
        Secret(type="kubernetes.io/dockercfg", data={".dockercfg": "W1tb" * 2000}),
        a_secret([]),
        a_secret({"a.example": {"username": 5}}),
    ],
    ids=["no json", "auth no base64", "no base64", "deep", "a list", "auths a list", "a number"],
)
def test_invalid_pull_secrets_are_rejected(secret: Secret) -> None:
    with pytest.raises(SecretFormatError, match="pull secret"):
        credentials_in(secret)


def test_other_secrets_hold_none() -> None:
    assert credentials_in(Secret(type="Opaque", data={".dockercfg": "e30="})) == []


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ({"auth": base64.b64encode(b"a:b:c").decode()}, ("a", "b:c")),
        ({"auth": base64.b64encode(b"a:b").decode(), "username": "u", "password": "p"}, ("u", "p")),
        ({"auth": "!", "username": "u", "password": "p"}, ("u", "p")),
        ({"username": "u"}, ("u", "")),
    ],
)
def test_a_name_that_is_given_counts_before_what_is_packed(
    entry: dict[str, str], wanted: tuple[str, str]
) -> None:
    (credential,) = credentials_in(a_secret({"r.example": entry}))
    assert (credential.auth.username, credential.auth.password) == wanted


def test_tokens_are_passed_on() -> None:
    entry = {"username": "u", "identitytoken": "i", "registrytoken": "r"}
    (credential,) = credentials_in(a_secret({"r.example": entry}))
    assert (credential.auth.identity_token, credential.auth.registry_token) == ("i", "r")
