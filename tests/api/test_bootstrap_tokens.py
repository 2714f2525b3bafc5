"""Which Secrets are bootstrap tokens, and for whom."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moorage.api.bootstrap_tokens import groups_of, is_expired, signing_token, token_id
from moorage.api.configuration import Secret
from moorage.api.meta import ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = "07401b.f395accd246ae52d"
TYPE = "bootstrap.kubernetes.io/token"


def secret(name: str = "bootstrap-token-07401b", **data: str | None) -> Secret:
    """A Secret with a token for both uses; `-` in keys is `_`, None drops one."""
    fields = {
        "token_id": "07401b",
        "token_secret": "f395accd246ae52d",
        "usage_bootstrap_authentication": "true",
        "usage_bootstrap_signing": "true",
        **data,
    }
    encoded = {
        key.replace("_", "-"): base64.b64encode(value.encode()).decode()
        for key, value in fields.items()
        if value is not None
    }
    meta = ObjectMeta(name=name, namespace="kube-system", uid="1")
    return Secret(metadata=meta, type=TYPE, data=encoded)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (TOKEN, "07401b"),
        (TOKEN + "\n", None),
        (TOKEN.upper(), None),
        (f"x{TOKEN}", None),
        ("07401b", None),
        ("", None),
    ],
)
def test_the_form_of_tokens(token: str, expected: str | None) -> None:
    assert token_id(token) == expected


@pytest.mark.parametrize("key", ["expiration", "auth-extra-groups", "token-secret", "token-id"])
@pytest.mark.parametrize("value", ["/w==", "//79", "%"])
def test_a_token_with_a_field_that_is_no_text_is_not_valid(key: str, value: str) -> None:
    broken = secret()
    broken.data[key] = value
    assert groups_of(broken, TOKEN, NOW) is None
    if key != "auth-extra-groups":
        assert signing_token(broken, NOW) is None


DEFAULT = ("system:bootstrappers",)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, DEFAULT),
        ({"auth_extra_groups": "system:bootstrappers:b,system:bootstrappers:a"},
         (*DEFAULT, "system:bootstrappers:a", "system:bootstrappers:b")),
        ({"auth_extra_groups": "system:masters"}, None),
        ({"auth_extra_groups": "system:bootstrappers:"}, None),
        ({"auth_extra_groups": "system:bootstrappers:a,"}, None),
        ({"token_secret": "f395accd246ae52e"}, None),
        ({"token_secret": None}, None),
        ({"token_id": "07401c"}, None),
        ({"usage_bootstrap_authentication": "yes"}, None),
        ({"usage_bootstrap_authentication": None}, None),
        ({"expiration": "2026-01-01T00:00:01Z"}, DEFAULT),
        ({"expiration": "2026-01-01T01:00:00+02:00"}, None),
        ({"expiration": "2026-01-01T00:00:00Z"}, None),
        ({"expiration": "soon"}, None),
        ({"expiration": "2027-01-01"}, None),
    ],
)  # fmt: skip
def test_groups(data: dict[str, Any], expected: tuple[str, ...] | None) -> None:
    assert groups_of(secret(**data), TOKEN, NOW) == expected


def test_other_secrets_are_no_tokens() -> None:
    own = secret()
    other = msgspec.structs.replace(own, type="Opaque")
    assert groups_of(other, TOKEN, NOW) is None
    assert signing_token(other, NOW) is None
    ending = msgspec.structs.replace(own.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    assert groups_of(msgspec.structs.replace(own, metadata=ending), TOKEN, NOW) is None
    assert groups_of(msgspec.structs.replace(own, data={"token-id": "!"}), TOKEN, NOW) is None


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (secret(), ("07401b", "f395accd246ae52d")),
        (secret("bootstrap-token-07401c"), None),
        (secret("bootstrap-token-", token_id=None), None),
        (secret(token_secret=None), None),
        (secret(usage_bootstrap_signing=None), None),
        (secret(expiration="2025-01-01T00:00:00Z"), None),
    ],
)
def test_tokens_that_sign(own: Secret, expected: tuple[str, str] | None) -> None:
    assert signing_token(own, NOW) == expected


def test_a_malformed_time_is_over() -> None:
    assert is_expired(secret(expiration="soon"), NOW)
    assert not is_expired(secret(), NOW)
