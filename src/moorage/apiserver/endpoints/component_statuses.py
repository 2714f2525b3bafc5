"""ComponentStatuses: whether the controllers and the scheduler answer, asked when they are read.

Their ports are on loopback, and their certificates may be their own, so these are not verified:
nothing secret is sent, and the answer decides nothing. Source: core/v1 `ComponentStatus`; core
registry `componentstatus`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Self

import aiohttp

from moorage.api import fields
from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.computed import ComputedReplies
from moorage.apiserver.endpoints.replies import Reply
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.selection import select

_SELECTORS = ("label", "field")
_WITHIN_S = 5.0
_LARGEST_BYTES = 10 * 1024


class ComponentStatuses:
    """Serves the state of the components; `ports` are those of their health, by name."""

    def __init__(self, ports: Mapping[str, int], clock: Clock) -> None:
        self._ports = dict(sorted(ports.items()))
        self._replies = ComputedReplies(clock, has_protobuf=True)
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=False, limit=len(self._ports) or 1),
            timeout=aiohttp.ClientTimeout(total=_WITHIN_S),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def get(self, call: Call) -> Reply:
        """Answer GET of a component. Raises NotFoundError."""
        name = call.target.name
        if name not in self._ports:
            raise NotFoundError.of("componentstatus", name)
        return self._replies.reply(call, await self._status(name))

    async def list(self, call: Call) -> Reply:
        """Answer GET of the components. Raises BadRequestError for a broken selector."""
        label_text, field_text = (call.query.get(f"{kind}Selector", "") for kind in _SELECTORS)
        selection = select(call.kind, call.served, label_text, field_text)
        named = fields.parse(field_text)
        # Components have no labels. Source: `matchesPredicate` of upstream's list.
        names = [
            name
            for name in self._ports
            if selection.labels.matches({}) and named.matches({"metadata.name": name})
        ]
        statuses = await asyncio.gather(*(self._status(name) for name in names))
        return self._replies.list_reply(call, statuses)

    async def _status(self, name: str) -> Obj:
        url = f"https://127.0.0.1:{self._ports[name]}/healthz"
        condition: Obj
        try:
            async with self._http.get(url, allow_redirects=False) as answer:
                text = (await answer.content.read(_LARGEST_BYTES)).decode(errors="replace")
                is_healthy = 200 <= answer.status < 400
                condition = {"status": "True" if is_healthy else "False", "message": text}
        except (aiohttp.ClientError, TimeoutError) as error:
            condition = {"status": "False", "message": f'Get "{url}": {_reason(error)}'}
        return {"metadata": {"name": name}, "conditions": [{"type": "Healthy", **condition}]}


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and error.strerror:
        return (
            f"dial tcp {error.host}:{error.port}: connect: {os.strerror(error.errno or 0)}".lower()
        )
    return str(error) or f"no answer within {_WITHIN_S:g} s"
