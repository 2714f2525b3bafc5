"""OpenAPI v3 of extension servers: their documents, in the index of this server's.

The index is asked for with discovery; of what a server lists only the document of the APIService's
own group and version is taken. Documents are fetched when a client wants one. Source:
kube-aggregator `controllers/openapiv3`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec

from moorage.api import bounds
from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.apiserver.aggregation.backend import Backends, FetchError
from moorage.apiserver.aggregation.services import Extension
from moorage.apiserver.endpoints.discovery.documents import group_priority, version_priority
from moorage.apiserver.endpoints.replies import JSON, Reply, text_reply
from moorage.apiserver.registry.deletion import DeleteOptions
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.apiservice import API_SERVICE
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.storage import Change

# Local APIServices: one for each group and version that this server serves itself.
#
# Those of the API are created at the start where absent; those of definitions come and go with
# them. Source: kube-aggregator `controllers/autoregister`; `crdregistration` of Kubernetes 1.36.

AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
_ON_START, _ALWAYS = "onstart", "true"
_OF_ITSELF = "apiregistration.k8s.io"
_CUSTOM_PRIORITY, _CUSTOM_VERSION_PRIORITY = 1000, 100
_RETRY_S = 1.0
_TABLE = API_SERVICE.prefix("")
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))

log = Log(__name__)


class LocalServices:
    """Creates, updates and deletes the APIServices that this server manages.

    Give `changed` to the store: what a user changes or deletes comes back.
    """

    def __init__(self, objects: Objects, resource_map: ResourceMap) -> None:
        self._objects = objects
        self._resource_map = resource_map
        self._wake = asyncio.Event()
        resource_map.listen(self._wake.set)

    def changed(self, changes: Iterable[Change]) -> None:
        """Look again at the APIServices of definitions if one is among the changes."""
        if any(change.key.startswith(_TABLE) for change in changes):
            self._wake.set()

    async def create_own(self) -> None:
        """Create those of the API's own groups, concurrently, so that they share a commit."""
        own = {
            (served.group, served.version)
            for kind, served in self._resource_map.resources()
            if not kind.is_custom and served.group != _OF_ITSELF
        }
        wanted = [
            _api_service(
                group, version, _ON_START, group_priority(group), version_priority(group, version)
            )
            for group, version in sorted(own)
        ]
        await asyncio.gather(*(self._sync(api_service) for api_service in wanted))

    async def run(self) -> None:
        """Keep those of definitions, until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self._sync_custom()
            except StatusError as error:
                log.warning("local APIServices not written", error=error)
                await asyncio.sleep(_RETRY_S)
                continue
            await self._wake.wait()

    async def _sync_custom(self) -> None:
        own = {
            (served.group, served.version)
            for kind, served in self._resource_map.resources()
            if not kind.is_custom
        }
        custom = {
            (kind.storage.group, kind.storage.version)
            for _, kind in self._resource_map.custom_kinds()
        } - own
        wanted = {
            f"{version}.{group}": _api_service(
                group, version, _ALWAYS, _CUSTOM_PRIORITY, _CUSTOM_VERSION_PRIORITY
            )
            for group, version in custom
        }
        for item in self._objects.scan(API_SERVICE, ""):
            if item.labels.get(AUTOMANAGED) == _ALWAYS and item.name not in wanted:
                await self._delete(item.name)
        for api_service in wanted.values():
            await self._sync(api_service)

    async def _sync(self, wanted: Obj) -> None:
        """Create an APIService, or give it back its specification if it is managed."""
        name = wanted["metadata"]["name"]
        item = self._objects.find(API_SERVICE, "", name)
        try:
            if item is None:
                await self._objects.create(_request(), API_SERVICE, API_SERVICE.storage, "", wanted)
            elif item.labels.get(AUTOMANAGED) and item.obj["spec"] != wanted["spec"]:
                stored = {**item.obj, "spec": wanted["spec"]}
                await self._objects.update(
                    _request(), API_SERVICE, API_SERVICE.storage, "", name, lambda _: stored
                )
        except (AlreadyExistsError, ConflictError, NotFoundError):
            return  # Another writer was faster; the change that it made wakes this again.

    async def _delete(self, name: str) -> None:
        try:
            await self._objects.delete(
                _request(), API_SERVICE, API_SERVICE.storage, "", name, DeleteOptions()
            )
        except NotFoundError:
            return


def _api_service(
    group: str, version: str, managed: str, priority: int, version_priority: int
) -> Obj:
    return {
        "metadata": {"name": f"{version}.{group}", "labels": {AUTOMANAGED: managed}},
        "spec": {
            **({"group": group} if group else {}),
            "version": version,
            "groupPriorityMinimum": priority,
            "versionPriority": version_priority,
        },
    }


def _request() -> Request:
    return Request(user=_USER, is_own=True, user_agent="apiserver/aggregation")


ROOT = "/openapi/v3"

_ANSWER_S = 5.0
_LONGEST_HASH = 512
_OK = 200


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    server_relative_url: str = msgspec.field(default="", name="serverRelativeURL")


class _Index(msgspec.Struct, frozen=True):
    paths: dict[str, _Entry] = {}


class ExtensionDocuments:
    """The documents of extension servers, by path below `/openapi/v3`: `apis/GROUP/VERSION`."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends
        self._known: dict[str, tuple[Extension, str]] = {}
        """Path → extension and hash."""

    def hashes(self) -> Mapping[str, str]:
        """Return the paths of the documents there are, with their hashes."""
        return {path: hash_ for path, (_, hash_) in self._known.items()}

    def forget(self, extension: Extension) -> None:
        """Leave an extension's document out of the index."""
        self._known.pop(_path(extension), None)

    def keep(self, extensions: set[str]) -> None:
        """Leave out those of extensions that are not there any more. `extensions` are names."""
        for path, (extension, _) in list(self._known.items()):
            if extension.name not in extensions:
                del self._known[path]

    async def ask(self, extension: Extension) -> None:
        """Ask an extension for its index; one without its group and version has no document."""
        try:
            self._known[_path(extension)] = (extension, await self._hash(extension))
        except FetchError:
            self.forget(extension)

    async def _hash(self, extension: Extension) -> str:
        accept = {"Accept": JSON}
        answer = await self._backends.fetch(extension, ROOT, _ANSWER_S, accept)
        if answer.status != _OK:
            raise FetchError(f"{ROOT} answered {answer.status}")
        if bounds.may_exceed(answer.body):
            raise FetchError(f"{ROOT}: {bounds.TOO_MANY}")
        try:
            entry = msgspec.json.decode(answer.body, type=_Index).paths[_path(extension)]
            query = parse_qs(urlsplit(entry.server_relative_url).query)
        except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
            raise FetchError(f"no OpenAPI document of {_path(extension)}: {error}") from error
        return query.get("hash", [""])[0][:_LONGEST_HASH]

    async def reply(self, path: str) -> Reply:
        """Return the document at a path of the index, as the extension answers now."""
        known = self._known.get(path)
        if known is None:
            return text_reply("", 404)
        try:
            accept = {"Accept": JSON}
            answer = await self._backends.fetch(known[0], f"{ROOT}/{path}", _ANSWER_S, accept)
            msgspec.json.decode(answer.body, type=dict[str, msgspec.Raw])
        except (FetchError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            return text_reply(f"error trying to reach service: {error}\n", 503)
        if answer.status != _OK:
            return text_reply("", answer.status if answer.status == 404 else 503)
        return Reply(answer.body, 200, JSON, {"Cache-Control": "no-cache, private"})


def _path(extension: Extension) -> str:
    return extension.path.removeprefix("/")
