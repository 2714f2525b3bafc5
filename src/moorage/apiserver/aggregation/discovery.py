"""Discovery of extension servers: what they serve, asked once a minute and after changes.

A server that does not answer keeps what it last said, marked as stale. What it says is copied field
by field, within bounds. Source: kube-aggregator `handler_discovery`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from moorage.api import bounds
from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.apiserver.aggregation.backend import Backends, Fetched, FetchError
from moorage.apiserver.aggregation.openapi import ExtensionDocuments
from moorage.apiserver.aggregation.services import Extension, Extensions
from moorage.apiserver.endpoints.discovery.documents import ForeignVersion
from moorage.apiserver.endpoints.replies import JSON
from moorage.apiserver.registry.custom.swagger_parts import SwaggerPart, part_of
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.apiservice import API_SERVICE
from moorage.apiserver.storage import Change

# OpenAPI v2 of extension servers: the parts of their documents that are about their groups.
#
# Clients since 1.27 read v3, so the documents are fetched when a client asks for v2, and again
# after a minute. A document that cannot be had leaves the one before. Source: kube-aggregator
# `controllers/openapi/aggregator`.

PATH = "/openapi/v2"

_FRESH_S = 60.0
_ANSWER_S = 5.0
_DOCUMENTS_AT_A_TIME = 4
_OK = 200

log = Log(__name__)


class _Known(msgspec.Struct, frozen=True):
    asked_s: float
    part: SwaggerPart | None


class ExtensionSwagger:
    """The parts of extension servers."""

    def __init__(self, backends: Backends, extensions: Extensions, clock: Clock) -> None:
        self._backends = backends
        self._extensions = extensions
        self._clock = clock
        self._known: dict[Extension, _Known] = {}
        self._room = asyncio.Semaphore(_DOCUMENTS_AT_A_TIME)

    async def parts(self) -> Sequence[SwaggerPart]:
        """Return the parts of the available extensions; those not known of late are fetched."""
        extensions = [
            extension
            for extension in self._extensions.all()
            if extension.group and extension.is_available
        ]
        self._known = {
            extension: known for extension, known in self._known.items() if extension in extensions
        }
        await asyncio.gather(*(self._refresh(extension) for extension in extensions))
        known = (self._known.get(extension) for extension in extensions)
        return [one.part for one in known if one is not None and one.part is not None]

    async def _refresh(self, extension: Extension) -> None:
        async with self._room:
            now_s = self._clock.monotonic()
            known = self._known.get(extension)
            if known is not None and now_s - known.asked_s < _FRESH_S:
                return
            part = None if known is None else known.part
            try:
                part = await self._fetch(extension)
            except (FetchError, ValueError) as error:
                log.warning("OpenAPI v2 not read", apiservice=extension.name, error=error)
            self._known[extension] = _Known(now_s, part)

    async def _fetch(self, extension: Extension) -> SwaggerPart | None:
        """Return an extension's part, None if it has no document. Raises FetchError, ValueError."""
        accept = {"Accept": JSON}
        answer = await self._backends.fetch(extension, PATH, _ANSWER_S, accept)
        if answer.status == 404:
            return None
        if answer.status != _OK:
            raise FetchError(f"{PATH} answered {answer.status}")
        return await asyncio.to_thread(part_of, answer.body, extension.path)


_TABLE = API_SERVICE.prefix("")
_EVERY_S = 60.0
_RETRY_S = 5.0
_AT_A_TIME = 8
_RESOURCES = 2000
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_ACCEPT = ", ".join([_AGGREGATED.format("v2"), _AGGREGATED.format("v2beta1"), "application/json"])


class _Kind(msgspec.Struct, omit_defaults=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(msgspec.Struct, rename="camel"):
    subresource: str
    response_kind: _Kind | None = None
    verbs: list[str] = []


class _Resource(msgspec.Struct, rename="camel"):
    resource: str
    response_kind: _Kind | None = None
    scope: str = ""
    singular_resource: str = ""
    verbs: list[str] = []
    short_names: list[str] = []
    categories: list[str] = []
    subresources: list[_Subresource] = []


class _Version(msgspec.Struct):
    version: str
    resources: list[_Resource] = []


class _Metadata(msgspec.Struct):
    name: str = ""


class _Group(msgspec.Struct):
    metadata: _Metadata
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    items: list[_Group] = []


class _Entry(msgspec.Struct, rename="camel"):
    name: str
    singular_name: str = ""
    namespaced: bool = False
    group: str = ""
    version: str = ""
    kind: str = ""
    verbs: list[str] = []
    short_names: list[str] = []
    categories: list[str] = []


class _Entries(msgspec.Struct):
    resources: list[_Entry] = []


class ExtensionDiscovery:
    """What extensions serve, for the discovery documents. Give `changed` to the store."""

    def __init__(
        self,
        extensions: Extensions,
        backends: Backends,
        documents: ExtensionDocuments,
        clock: Clock,
    ) -> None:
        self._extensions = extensions
        self._backends = backends
        self._documents = documents
        self._clock = clock
        self._known: dict[str, list[Obj]] = {}
        self._stale: set[str] = set()
        self._asked: dict[str, float] = {}
        self._changes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(_AT_A_TIME)

    def changed(self, changes: Iterable[Change]) -> None:
        """Ask again soon if an APIService is among the changes."""
        if any(change.key.startswith(_TABLE) for change in changes):
            self._asked.clear()
            self._changes += 1
            self._wake.set()

    def versions(self) -> Sequence[ForeignVersion]:
        """Return the versions that extensions serve, as far as it is known."""
        return [
            ForeignVersion(
                extension.group,
                extension.version,
                tuple(self._known.get(extension.name, ())),
                is_current=extension.name in self._known and extension.name not in self._stale,
                group_priority=extension.group_priority,
                version_priority=extension.version_priority,
            )
            for extension in self._extensions.all()
            if extension.group
        ]

    async def run(self) -> None:
        """Ask the extensions there are, until cancelled."""
        while True:
            self._wake.clear()
            extensions = self._extensions.all()
            names = {extension.name for extension in extensions}
            for name in self._known.keys() - names:
                del self._known[name]
            self._stale &= names
            self._documents.keep(names)
            now = self._clock.monotonic()
            due = [one for one in extensions if self._asked.get(one.name, -_EVERY_S) <= now]
            await asyncio.gather(*(self._ask(extension) for extension in due))
            wait_s = _EVERY_S if not extensions else _RETRY_S
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _ask(self, extension: Extension) -> None:
        async with self._room:
            changes = self._changes
            try:
                if not extension.is_available:
                    raise FetchError("service unavailable")
                self._known[extension.name] = await self._resources(extension)
                self._stale.discard(extension.name)
                await self._documents.ask(extension)
                wait_s = _EVERY_S
            except FetchError:
                self._stale.add(extension.name)
                self._documents.forget(extension)
                wait_s = _RETRY_S
        # What changed while it was asked may change its answer: it is asked again at once.
        if changes == self._changes:
            self._asked[extension.name] = self._clock.monotonic() + wait_s

    async def _resources(self, extension: Extension) -> list[Obj]:
        """Return the resources of an extension, in the aggregated form. Raises FetchError."""
        headers = {"Accept": _ACCEPT}
        answer = await self._backends.fetch(extension, "/apis", _ANSWER_S, headers)
        if answer.status == _OK and "as=APIGroupDiscoveryList" in answer.content_type:
            return _from_groups(answer, extension)
        headers = {"Accept": "application/json"}
        answer = await self._backends.fetch(extension, extension.path, _ANSWER_S, headers)
        if answer.status != _OK:
            raise FetchError(f"{extension.path} answered {answer.status}")
        return _from_entries(answer)


def _check_size(answer: Fetched) -> None:
    if bounds.may_exceed(answer.body):
        raise FetchError(f"not a discovery document: {bounds.TOO_MANY}")


def _from_groups(answer: Fetched, extension: Extension) -> list[Obj]:
    _check_size(answer)
    try:
        groups = msgspec.json.decode(answer.body, type=_Groups).items
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FetchError(f"not a discovery document: {error}") from error
    resources = [
        resource
        for group in groups
        for version in group.versions
        for resource in version.resources
        if group.metadata.name == extension.group and version.version == extension.version
    ]
    return [_shown(resource) for resource in resources[:_RESOURCES]]


def _from_entries(answer: Fetched) -> list[Obj]:
    """Return the resources of an APIResourceList, in the aggregated form."""
    _check_size(answer)
    try:
        entries = msgspec.json.decode(answer.body, type=_Entries).resources[:_RESOURCES]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FetchError(f"not a list of resources: {error}") from error
    found: dict[str, _Resource] = {}
    for entry in entries:
        name, _, part = entry.name.partition("/")
        kind = _Kind(entry.group, entry.version, entry.kind)
        if part:
            if name in found:
                found[name].subresources.append(_Subresource(part, kind, entry.verbs))
            continue
        found[name] = _Resource(
            resource=name,
            response_kind=kind,
            scope="Namespaced" if entry.namespaced else "Cluster",
            singular_resource=entry.singular_name,
            verbs=entry.verbs,
            short_names=entry.short_names,
            categories=entry.categories,
            subresources=[],
        )
    return [_shown(resource) for resource in found.values()]


def _shown(resource: _Resource) -> Obj:
    shown: Obj = {
        "resource": resource.resource,
        "responseKind": msgspec.to_builtins(resource.response_kind or _Kind()),
        "scope": resource.scope,
        "singularResource": resource.singular_resource,
        "verbs": resource.verbs,
    }
    for key, names in (("shortNames", resource.short_names), ("categories", resource.categories)):
        if names:
            shown[key] = names
    if resource.subresources:
        shown["subresources"] = [
            {
                "subresource": part.subresource,
                "responseKind": msgspec.to_builtins(part.response_kind or _Kind()),
                "verbs": part.verbs,
            }
            for part in resource.subresources
        ]
    return shown
