"""Where the key of service account tokens is found."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from aiohttp.test_utils import make_mocked_request
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.apiserver.authentication.service_accounts import TokenSigner
from moorage.apiserver.endpoints.openapi import IssuerPages
from tests.clocks import FakeClock

SIGNER = TokenSigner(ec.generate_private_key(ec.SECP256R1()), "https://issuer", ["a"], FakeClock())
PAGES = IssuerPages(SIGNER, "https://10.0.0.1:6443")


def _page(path: str) -> tuple[str, Any]:
    reply = PAGES(make_mocked_request("GET", path))
    assert reply is not None
    assert reply.status == 200
    return reply.content_type, json.loads(reply.body)


@pytest.mark.parametrize("end", ["", "/"])
def test_the_configuration(end: str) -> None:
    assert _page(f"/.well-known/openid-configuration{end}") == (
        "application/json",
        {
            "issuer": "https://issuer",
            "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        },
    )


def test_a_token_is_verified_with_the_published_key() -> None:
    media, keys = _page("/openid/v1/jwks/")
    assert media == "application/jwk-set+json"
    token = SIGNER.issue("ns", "sa", "uid", audiences=["a"], seconds=600).token
    key = jwt.PyJWKSet.from_dict(keys)[jwt.get_unverified_header(token)["kid"]]
    options: Any = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}
    claims = jwt.decode(token, key, algorithms=["ES256"], audience="a", options=options)
    assert claims["sub"] == "system:serviceaccount:ns:sa"
    assert claims["iss"] == "https://issuer"


@pytest.mark.parametrize(
    "path", ["/", "/openid", "/openid/v1", "/.well-known", "/openid/v1/jwks/x"]
)
def test_other_paths_are_not_its_own(path: str) -> None:
    assert PAGES(make_mocked_request("GET", path)) is None
