"""Health, version and OpenAPI: pages that tools read before anything else."""

from __future__ import annotations

import gzip
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request

from moorage.apiserver.endpoints.openapi import OpenApiPages
from moorage.apiserver.endpoints.replies import Reply
from moorage.apiserver.server.own_endpoints import Health, version_reply

PAGES = OpenApiPages()


class State:
    """A server that may not be ready yet."""

    def __init__(self) -> None:
        self.is_ready = False
        self.health = Health(live={"ping": lambda: True}, ready={"boot": lambda: self.is_ready})

    def ask(self, path: str, **query: str) -> tuple[int, str]:
        reply = self.health.reply(path, query)
        assert reply is not None
        assert reply.content_type.startswith("text/plain")
        return reply.status, reply.body.decode()


def test_alive_is_not_ready() -> None:
    state = State()
    for path in ("/healthz", "/livez", "/livez/", "/livez/ping"):
        assert state.ask(path) == (200, "ok")
    assert state.ask("/readyz") == (
        500,
        "[+]ping ok\n[-]boot failed: reason withheld\nreadyz check failed\n",
    )
    assert state.ask("/readyz/boot") == (
        500, "[-]boot failed: reason withheld\nreadyz check failed\n",
    )  # fmt: skip
    state.is_ready = True
    assert state.ask("/readyz") == state.ask("/readyz/boot") == (200, "ok")


@pytest.mark.parametrize("value", ["", "1", "true"])
def test_every_check_is_listed_when_asked(value: str) -> None:
    state = State()
    state.is_ready = True
    assert state.ask("/readyz", verbose=value) == (
        200, "[+]ping ok\n[+]boot ok\nreadyz check passed\n",
    )  # fmt: skip
    assert state.ask("/livez", verbose=value) == (200, "[+]ping ok\nlivez check passed\n")
    assert state.ask("/readyz", verbose="false") == (200, "ok")


def test_unknown_check_and_unknown_path_are_not_found() -> None:
    state = State()
    assert state.ask("/livez/boot")[0] == 404
    assert state.ask("/readyz/nope")[0] == 404
    assert state.health.reply("/health", {}) is None
    assert state.health.reply("/", {}) is None


def test_the_version_is_text_throughout_and_numbers_where_clients_count() -> None:
    document = msgspec.json.decode(version_reply().body)
    assert all(isinstance(value, str) for value in document.values())
    assert (document["major"], document["minor"]) == ("1", "37")
    assert document["gitVersion"].startswith("v1.37.0+moorage.")
    assert document["platform"].startswith("linux/")
    assert {"emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor",
            "gitCommit", "gitTreeState", "buildDate", "goVersion",
            "compiler"} <= document.keys()  # fmt: skip


def ask(path: str, **headers: str) -> Reply:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    reply = PAGES(make_mocked_request("GET", path, headers=header_fields))
    assert isinstance(reply, Reply)
    return reply


def index() -> dict[str, str]:
    reply = ask("/openapi/v3")
    assert reply.content_type.startswith("text/plain")
    paths = msgspec.json.decode(reply.body)["paths"]
    return {path: entry["serverRelativeURL"] for path, entry in paths.items()}


def test_the_index_names_every_document_with_its_hash() -> None:
    document = index()
    assert {"api/v1", "apis/apps/v1", "apis/node.k8s.io/v1"} <= document.keys()
    for path, url in document.items():
        assert url.startswith(f"/openapi/v3/{path}?hash=")
        digest = url.partition("hash=")[2]
        assert len(digest) == 128
        assert digest == digest.upper()


def test_a_document_asked_for_by_its_hash_may_be_kept_for_ever() -> None:
    url = index()["apis/node.k8s.io/v1"]
    reply = ask(url)
    assert reply.status == 200
    assert reply.content_type == "application/json"
    assert reply.headers["Cache-Control"] == "public, immutable"
    assert "Expires" in reply.headers
    assert reply.headers["Etag"] == f'"{url.partition("hash=")[2]}"'


def test_an_old_hash_leads_to_the_present_one() -> None:
    url = index()["apis/node.k8s.io/v1"]
    reply = ask("/openapi/v3/apis/node.k8s.io/v1?hash=OLD")
    assert reply.status == 301
    assert reply.headers["Location"] == url


def test_without_a_hash_nothing_is_kept() -> None:
    reply = ask("/openapi/v3/apis/node.k8s.io/v1/")
    assert reply.status == 200
    assert "no-cache" in reply.headers["Cache-Control"]


def test_matching_etag_of_a_document_returns_not_modified() -> None:
    etag = ask("/openapi/v3/api/v1").headers["Etag"]
    reply = ask("/openapi/v3/api/v1", If_None_Match=etag)
    assert (reply.status, reply.body) == (304, b"")


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/api/v1"])
def test_documents_are_compressed_if_the_client_accepts_gzip(path: str) -> None:
    plain, packed = ask(path), ask(path, Accept_Encoding="gzip, deflate")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert gzip.decompress(packed.body) == plain.body


def test_an_unknown_document_is_an_empty_404() -> None:
    reply = ask("/openapi/v3/apis/none/v1")
    assert (reply.status, reply.body) == (404, b"")


@pytest.mark.parametrize("accept", ["text/html", "application/yaml"])
def test_a_form_that_there_is_not_is_an_empty_406(accept: str) -> None:
    for path in ("/openapi/v2", "/openapi/v3/api/v1"):
        reply = ask(path, Accept=accept)
        assert (reply.status, reply.body) == (406, b"")


def test_v3_has_no_protobuf_and_v2_has() -> None:
    v3 = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
    assert ask("/openapi/v3/api/v1", Accept=v3).status == 406
    reply = ask("/openapi/v2", Accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert reply.status == 200
    assert reply.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert reply.body[:1] != b"{"


def test_other_paths_are_not_its_own() -> None:
    for path in ("/openapi", "/openapi/v4", "/api", "/openapi/v2/x"):
        assert PAGES(make_mocked_request("GET", path)) is None


def test_v2_is_swagger_with_every_kind() -> None:
    document: dict[str, Any] = msgspec.json.decode(ask("/openapi/v2").body)
    assert document["swagger"] == "2.0"
    assert "io.k8s.api.node.v1.RuntimeClass" in document["definitions"]
