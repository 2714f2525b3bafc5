"""OpenAPI documents: which one, in which form, and when not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from email.utils import parsedate_to_datetime

import pytest
from aiohttp.test_utils import make_mocked_request

from moorage.apiserver.endpoints.openapi import OpenApiPages
from moorage.apiserver.endpoints.replies import Reply
from moorage.apiserver.registry.openapi import Documents

_DOCUMENTS = Documents()
_PAGES = OpenApiPages(_DOCUMENTS)
_NODE = "/openapi/v3/apis/node.k8s.io/v1"
_NODE_HASH = _DOCUMENTS.v3["apis/node.k8s.io/v1"].hash
_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def _reply(path: str, **headers: str) -> Reply:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = _PAGES(make_mocked_request("GET", path, headers=header_fields))
    assert isinstance(reply, Reply)
    return reply


@pytest.mark.parametrize("path", ["/", "/openapi", "/openapi/v2/x", "/openapi/v4", "/api"])
def test_other_paths_are_not_its_own(path: str) -> None:
    assert _PAGES(make_mocked_request("GET", path)) is None


@pytest.mark.parametrize("path", ["/openapi/v3", "/openapi/v3/"])
def test_the_index_names_every_document_with_its_hash(path: str) -> None:
    reply = _reply(path)
    assert (reply.status, reply.content_type) == (200, "text/plain")
    assert json.loads(reply.body) == {
        "paths": {
            name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={document.hash}"}
            for name, document in _DOCUMENTS.v3.items()
        }
    }


def test_a_document_that_there_is_not() -> None:
    reply = _reply("/openapi/v3/apis/none/v1")
    assert (reply.status, reply.body) == (404, b"")


def test_a_document_is_read_again_each_time_unless_its_hash_is_named() -> None:
    plain = _reply(_NODE)
    assert plain.headers == {
        "Cache-Control": "no-cache, private", "Etag": f'"{_NODE_HASH}"',
        "Vary": "Accept-Encoding, Accept",
    }  # fmt: skip
    assert json.loads(plain.body)["openapi"].startswith("3.")
    named = _reply(f"{_NODE}?hash={_NODE_HASH}")
    assert named.body == plain.body
    assert named.headers["Cache-Control"] == "public, immutable"
    until_s = parsedate_to_datetime(named.headers["Expires"]).timestamp() - time.time()
    assert abs(until_s - 365 * 24 * 3600) < 600
    assert named.headers["Expires"].endswith(" GMT")


def test_an_older_hash_leads_to_the_present_one() -> None:
    reply = _reply(f"{_NODE}?hash=OLD")
    assert (reply.status, reply.body) == (301, b"")
    assert reply.headers["Location"] == f"{_NODE}?hash={_NODE_HASH}"


@pytest.mark.parametrize("path", ["/openapi/v2", _NODE, "/openapi/v2/"])
def test_what_a_client_has_already_is_not_sent(path: str) -> None:
    etag = _reply(path).headers["Etag"]
    reply = _reply(path, If_None_Match=etag)
    assert (reply.status, reply.body) == (304, b"")
    assert reply.headers["Etag"] == etag
    assert _reply(path, If_None_Match='"other"').status == 200


@pytest.mark.parametrize("path", ["/openapi/v2", _NODE])
def test_documents_are_compressed_if_the_client_accepts_gzip(path: str) -> None:
    plain, packed = _reply(path), _reply(path, Accept_Encoding="br, gzip")
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["Etag"] == plain.headers["Etag"]
    assert plain.is_final
    assert packed.is_final
    assert "Content-Encoding" not in _reply(path, Accept_Encoding="gzip;q=0").headers


@pytest.mark.parametrize(
    ("accept", "status"),
    [("", 200), ("application/json", 200), ("application/*;q=0.8", 200), ("text/html, */*", 200),
     ("text/html", 406), ("application/yaml", 406)],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/openapi/v2", _NODE])
def test_json_is_sent_if_the_client_accepts_it(path: str, accept: str, status: int) -> None:
    reply = _reply(path, Accept=accept)
    assert reply.status == status
    if status == 200:
        assert reply.content_type == "application/json"
        assert json.loads(reply.body)["info"]["title"]


@pytest.mark.parametrize("accept", [_PROTOBUF, f"{_PROTOBUF};q=0.9, */*",
                                    _PROTOBUF.replace("@", ".")])  # fmt: skip
def test_v2_is_protobuf_for_older_clients(accept: str) -> None:
    reply = _reply("/openapi/v2", Accept=accept)
    assert reply.status == 200
    assert reply.content_type == _PROTOBUF.replace("@", ".")
    assert reply.body == _DOCUMENTS.swagger_protobuf.text()
    assert reply.headers["Cache-Control"] == "no-cache, private"
    # v3 has no such form.
    assert _reply(_NODE, Accept=_PROTOBUF).status == 406


def test_hashes_are_of_the_documents() -> None:
    for document in (_DOCUMENTS.swagger, _DOCUMENTS.v3["api/v1"]):
        assert document.hash == hashlib.sha512(document.text()).hexdigest().upper()
