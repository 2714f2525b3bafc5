"""OpenAPI v2 of extension servers: the parts of their documents that are about their groups.

Clients since 1.27 read v3, so the documents are fetched when a client asks for v2, and again after
a minute. A document that cannot be had leaves the one before. Source: kube-aggregator
`controllers/openapi/aggregator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.apiserver.aggregation.backend import Backends, FetchError
from moorage.apiserver.aggregation.services import Extension, Extensions
from moorage.apiserver.endpoints.replies import JSON
from moorage.apiserver.registry.custom.swagger_parts import SwaggerPart, part_of

PATH = "/openapi/v2"

_FRESH_S = 60.0
_ANSWER_S = 5.0
_AT_A_TIME = 4
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
        self._room = asyncio.Semaphore(_AT_A_TIME)

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
