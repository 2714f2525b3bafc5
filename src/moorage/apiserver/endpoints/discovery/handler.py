"""Discovery handler: serves documents that are encoded once and carry an ETag.

Source: API docs "Discovery API"; KEP-3352 for the aggregated form and its negotiation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec
from aiohttp import web

from moorage.api.errors import NotAcceptableError
from moorage.apiserver.endpoints.discovery import documents
from moorage.apiserver.endpoints.discovery.documents import Document, ForeignVersion, grouped
from moorage.apiserver.endpoints.negotiation import negotiate
from moorage.apiserver.endpoints.replies import Reply, formed
from moorage.apiserver.registry.resource_map import ResourceMap

_AGGREGATED_VERSIONS = ("v2", "v2beta1")
_AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"


class _Page(msgspec.Struct, frozen=True):
    body: bytes
    etag: str
    content_type: str


class _Plain(msgspec.Struct, frozen=True):
    """An unaggregated document and the type of its protobuf message."""

    body: bytes
    type_name: str


class DiscoveryHandler:
    """Serves `/api`, `/apis` and below; None for any other path. `address` is host:port.

    The documents are encoded when they are first requested after a change of the served kinds.
    """

    def __init__(
        self,
        resource_map: ResourceMap,
        address: str,
        foreign: Callable[[], Sequence[ForeignVersion]] = tuple,
    ) -> None:
        """`foreign` returns what extension servers serve; their own paths are passed on to them."""
        self._resource_map = resource_map
        self._address = address
        self._foreign = foreign
        self._changes = -1
        self._encoded_foreign: Sequence[ForeignVersion] = ()

    def _encode(self, foreign: Sequence[ForeignVersion]) -> None:
        self._changes = self._resource_map.changes
        self._encoded_foreign = foreign
        groups = grouped(self._resource_map.resources(), foreign)
        core, named = groups[:1], groups[1:]
        self._plain: dict[str, _Plain] = {
            "/api": _plain(documents.core_versions(self._address)),
            "/apis": _plain(documents.group_list(named)),
        }
        for group in groups:
            root = f"/apis/{group.name}" if group.name else "/api"
            if group.name:
                self._plain[root] = _plain(documents.group(group))
            for version in group.versions:
                if version.foreign is not None:
                    continue
                self._plain[f"{root}/{version.version}"] = _plain(documents.resource_list(version))
        self._aggregated = {
            (path, version): _page(documents.aggregated(which, version), version)
            for path, which in (("/api", core), ("/apis", named))
            for version in _AGGREGATED_VERSIONS
        }

    def __call__(self, http: web.BaseRequest) -> Reply | None:
        path = http.path.rstrip("/")
        if not path.startswith("/api"):
            return None
        foreign = self._foreign()
        if self._changes != self._resource_map.changes or foreign != self._encoded_foreign:
            self._encode(foreign)
        plain = self._plain.get(path)
        if plain is None:
            return None
        accept = http.headers.get("Accept", "")
        if "apidiscovery.k8s.io" in accept and path in ("/api", "/apis"):
            page = self._asked(path, accept)
            if page is not None:
                return _reply(page, http.headers.get("If-None-Match", ""))
            # The remaining clauses may still accept the unaggregated form.
            accept = ",".join(clause for clause in accept.split(",") if ";as=" not in _flat(clause))
            if not accept:
                raise NotAcceptableError(
                    "only the following media types are accepted: application/json, "
                    + ", ".join(map(_AGGREGATED_TYPE.format, _AGGREGATED_VERSIONS))
                )
        return formed(plain.body, negotiate(accept, False, True), type_name=plain.type_name)

    def _asked(self, path: str, accept: str) -> _Page | None:
        """Return the page of the first aggregated clause, None if the plain form precedes it."""
        for clause in map(_flat, accept.split(",")):
            if clause in ("application/json", "*/*"):
                return None
            for version in _AGGREGATED_VERSIONS:
                if _flat(_AGGREGATED_TYPE.format(version)) == clause:
                    return self._aggregated[path, version]
        return None


def _flat(clause: str) -> str:
    """Return a media range without blanks and ignored parameters, the others sorted."""
    media, *parameters = (part.strip() for part in clause.split(";"))
    kept = sorted(
        parameter for parameter in parameters if not parameter.startswith(("q=", "profile="))
    )
    return ";".join((media, *kept))


def _encoded(document: Document) -> bytes:
    return msgspec.json.encode(document) + b"\n"


def _plain(document: Document) -> _Plain:
    return _Plain(_encoded(document), f"{_META}.{document['kind']}")


def _page(document: Document, version: str) -> _Page:
    body = _encoded(document)
    digest = hashlib.sha512(body).hexdigest().upper()
    return _Page(body, f'"{digest}"', _AGGREGATED_TYPE.format(version))


def _reply(page: _Page, known: str) -> Reply:
    headers = {"Cache-Control": "public", "Vary": "Accept", "Etag": page.etag}
    if known == page.etag:
        return Reply(b"", 304, page.content_type, headers)
    return Reply(page.body, 200, page.content_type, headers)
