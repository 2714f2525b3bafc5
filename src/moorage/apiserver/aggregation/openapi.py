"""OpenAPI v3 of extension servers: their documents, in the index of this server's.

The index is asked for with discovery; of what a server lists only the document of the APIService's
own group and version is taken. Documents are fetched when a client wants one. Source:
kube-aggregator `controllers/openapiv3`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec

from moorage.api import bounds
from moorage.apiserver.aggregation.backend import Backends, FetchError
from moorage.apiserver.aggregation.services import Extension
from moorage.apiserver.endpoints.replies import JSON, Reply, text_reply

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
