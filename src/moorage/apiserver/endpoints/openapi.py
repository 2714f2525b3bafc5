"""OpenAPI endpoints `/openapi/v2` and `/openapi/v3`, for `kubectl apply`, `diff` and `explain`.

Documents are sent as stored on disk, compressed, to clients that accept gzip. v3 is JSON; v2 is
also protobuf, the only form that clients older than v3 request. Custom resources and what extension
servers describe are in both.
Source: KEP-2896 (OpenAPI v3), API docs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from time import time
from typing import Protocol
from urllib.parse import quote

import msgspec
from aiohttp import web

from moorage.apiserver.authentication.service_accounts import ALGORITHM, TokenSigner
from moorage.apiserver.endpoints.negotiation import accepts_gzip
from moorage.apiserver.endpoints.replies import JSON, Reply, json_reply, text_reply
from moorage.apiserver.registry.custom.openapi import CustomDocument
from moorage.apiserver.registry.custom.swagger import Swagger, SwaggerDocument
from moorage.apiserver.registry.openapi import Document, Documents

# Service account issuer discovery: the key that verifies service account tokens.
#
# Source: OpenID Connect Discovery; API docs "Service account issuer discovery".

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


_ROOT = "/openapi/v3"
_YEAR_S = 365 * 24 * 3600
_JSON_RANGES = frozenset({JSON, "application/*", "*/*", ""})
# Clients request it with an @; the Content-Type has a dot: @ is not allowed in a media type.
_PROTOBUF_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


_Document = Document | CustomDocument | SwaggerDocument


class ForeignDocuments(Protocol):
    """Documents of v3 that other servers have, by path below `/openapi/v3`."""

    def hashes(self) -> Mapping[str, str]:
        """Return the paths of the documents there are, with their hashes."""

    async def reply(self, path: str) -> Reply:
        """Return the answer to a request for a document; 404 for one that is not there."""


class OpenApiPages:
    """Serves the OpenAPI paths; None for any other.

    `custom` returns the documents of custom resources by path; they replace those of `documents`.
    `swagger` is the v2 document with them. `foreign` are those of extension servers.
    """

    def __init__(
        self,
        documents: Documents | None = None,
        custom: Callable[[], Mapping[str, CustomDocument]] = dict,
        swagger: Swagger | None = None,
        foreign: ForeignDocuments | None = None,
    ) -> None:
        self._documents = documents or Documents()
        self._custom = custom
        self._joined = swagger
        self._foreign = foreign

    def __call__(self, http: web.BaseRequest) -> Reply | Awaitable[Reply] | None:
        path = http.path.rstrip("/")
        if path == "/openapi/v2":
            return self._swagger(http)
        if path == _ROOT:
            return self._index()
        if path.startswith(f"{_ROOT}/"):
            return self._document(http, path.removeprefix(f"{_ROOT}/"))
        return None

    def _index(self) -> Reply:
        hashes = {path: document.hash for path, document in self._by_path().items()}
        if self._foreign is not None:
            hashes = {**self._foreign.hashes(), **hashes}
        paths = {
            path: {"serverRelativeURL": f"{_ROOT}/{path}?hash={quote(hash_, safe='')}"}
            for path, hash_ in hashes.items()
        }
        return Reply(msgspec.json.encode({"paths": paths}), content_type="text/plain")

    def _by_path(self) -> dict[str, _Document]:
        return {**self._documents.v3, **self._custom()}

    def _document(self, http: web.BaseRequest, path: str) -> Reply | Awaitable[Reply]:
        document = self._by_path().get(path)
        if document is None:
            return text_reply("", 404) if self._foreign is None else self._foreign.reply(path)
        asked = http.query.get("hash", "")
        if asked and asked != document.hash:
            location = f"{_ROOT}/{path}?hash={document.hash}"
            return Reply(b"", 301, JSON, {"Location": location})
        headers = {"Cache-Control": "no-cache, private"}
        if asked:
            expires = formatdate(time() + _YEAR_S, usegmt=True)
            headers = {"Cache-Control": "public, immutable", "Expires": expires}
        return _sent(http, document, headers)

    def _swagger(self, http: web.BaseRequest) -> Reply | Awaitable[Reply]:
        is_protobuf = bool(_accepted(http) & {_PROTOBUF_ASKED, _PROTOBUF})
        if self._joined is not None:
            return _joined(http, self._joined, is_protobuf=is_protobuf)
        documents = self._documents
        own = documents.swagger_protobuf if is_protobuf else documents.swagger
        return _swagger_reply(http, own, is_protobuf=is_protobuf)


async def _joined(http: web.BaseRequest, swagger: Swagger, *, is_protobuf: bool) -> Reply:
    document = await swagger.document(is_protobuf=is_protobuf)
    return _swagger_reply(http, document, is_protobuf=is_protobuf)


def _swagger_reply(http: web.BaseRequest, document: _Document, *, is_protobuf: bool) -> Reply:
    headers = {"Cache-Control": "no-cache, private"}
    if is_protobuf:
        return _written(http, document, _PROTOBUF, headers)
    return _sent(http, document, headers)


def _accepted(http: web.BaseRequest) -> set[str]:
    clauses = http.headers.get("Accept", "").split(",")
    return {clause.partition(";")[0].strip() for clause in clauses}


def _sent(http: web.BaseRequest, document: _Document, headers: dict[str, str]) -> Reply:
    """Return the JSON document, if JSON is accepted."""
    if not _accepted(http) & _JSON_RANGES:
        return text_reply("", 406)
    return _written(http, document, JSON, headers)


def _written(
    http: web.BaseRequest,
    document: _Document,
    content_type: str,
    headers: dict[str, str],
) -> Reply:
    etag = f'"{document.hash}"'
    headers |= {"Etag": etag, "Vary": "Accept-Encoding, Accept"}
    if http.headers.get("If-None-Match", "") == etag:
        return Reply(b"", 304, content_type, headers)
    body = document.text
    if accepts_gzip(http.headers.get("Accept-Encoding", "")):
        body = document.compressed
        headers["Content-Encoding"] = "gzip"
    return Reply(body(), 200, content_type, headers, is_final=True)
