"""Service account issuer discovery: the key that verifies service account tokens.

Source: OpenID Connect Discovery; API docs "Service account issuer discovery".
"""

from __future__ import annotations

from aiohttp import web

from moorage.apiserver.authentication.service_accounts import ALGORITHM, TokenSigner
from moorage.apiserver.endpoints.replies import Reply, json_reply

_KEYS = "/openid/v1/jwks"


class IssuerPages:
    """Serves the two discovery paths; None for any other."""

    def __init__(self, signer: TokenSigner, public_url: str) -> None:
        self._signer = signer
        self._public_url = public_url

    def __call__(self, http: web.BaseRequest) -> Reply | None:
        match http.path.rstrip("/"):
            case "/.well-known/openid-configuration":
                return json_reply(
                    {
                        "issuer": self._signer.issuer,
                        "jwks_uri": f"{self._public_url}{_KEYS}",
                        "response_types_supported": ["id_token"],
                        "subject_types_supported": ["public"],
                        "id_token_signing_alg_values_supported": [ALGORITHM],
                    }
                )
            case "/openid/v1/jwks":
                reply = json_reply(self._signer.key_set())
                reply.content_type = "application/jwk-set+json"
                return reply
            case _:
                return None
