"""Web page at `/ui/`: its answers, with the rights of the user who asks.

Each list and object is authorized as if it had been requested by itself. The server's own copy is
read, so that a page costs no request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from moorage.api.errors import MethodNotAllowedError, NotFoundError
from moorage.api.meta import Object
from moorage.apiserver.authorization import Authorizer, refusal
from moorage.apiserver.endpoints.replies import TEXT, Reply
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.rbac import Action
from moorage.apiserver.registry.request import User
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.selection import select
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.server.handler import Foreign
from moorage.apiserver.storage import WatchCache

if TYPE_CHECKING:
    from moorage.apiserver.web_page import Site
    from moorage.wire.client.resources import Resource

T = TypeVar("T", bound=Object)

ROOT = "/ui"
_TURN_S = 0.005
"""Time of decoding after which other requests have their turn."""
_AT_ONCE = 2
"""Pages made at the same time. Pods and events are counted, not kept."""


class WebPage:
    """Returns what answers a GET below `/ui/`; None for other paths."""

    def __init__(
        self, resource_map: ResourceMap, cache: WatchCache[Stored], authorizer: Authorizer
    ) -> None:
        self._resource_map = resource_map
        self._cache = cache
        self._authorizer = authorizer
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def __call__(self, request: Foreign) -> Callable[[], Awaitable[Reply]] | None:
        path = request.target.path
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            return None
        return partial(self._answer, request.http.method, path.removeprefix(ROOT), request.user)

    async def _answer(self, method: str, path: str, user: User) -> Reply:
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowedError
        if not path:
            # Relative, for those who come through a proxy.
            return Reply(b"", 301, TEXT, {"Location": f"{ROOT.removeprefix('/')}/"})
        async with self._slots:
            page = await self._site.page(path, OwnReader(self, user))
        return Reply(page.body, 200, page.content_type, dict(page.headers), is_compressible=True)

    @cached_property
    def _site(self) -> Site:
        # Imported at the first request: most servers never show the page.
        from moorage.apiserver.web_page import Site

        return Site()

    def kind_for(
        self, user: User, verb: str, resource: Resource[T], namespace: str, name: str = ""
    ) -> tuple[Kind, Served]:
        """Return a kind and its version. Raises ForbiddenError, NotFoundError."""
        action = Action(
            verb=verb,
            group=resource.group,
            resource=resource.plural,
            namespace=namespace,
            name=name,
        )
        decision = self._authorizer.decide(user, action)
        if not decision.is_allowed:
            raise refusal(user, action, decision.reason)
        found = self._resource_map.find(resource.group, resource.version, resource.plural)
        if found is None:
            raise NotFoundError.no_such_resource()
        return found

    def scan(self, kind: Kind, namespace: str) -> Sequence[Stored]:
        """Return the stored objects of a namespace, of all for `""`."""
        return self._cache.scan(kind.prefix(namespace))

    def find(self, kind: Kind, namespace: str, name: str) -> Stored | None:
        """Return a stored object."""
        return self._cache.get(kind.key(namespace, name))


class OwnReader:
    """Reads the server's own copy on behalf of a user."""

    def __init__(self, page: WebPage, user: User) -> None:
        self._page = page
        self._user = user

    async def visit(
        self,
        resource: Resource[T],
        take: Callable[[T], None],
        namespace: str | None = None,
        *,
        field_selector: str = "",
    ) -> None:
        kind, served = self._page.kind_for(self._user, "list", resource, namespace or "")
        selection = select(kind, served, "", field_selector)
        decoder = msgspec.json.Decoder(resource.type)
        began_s = time.monotonic()
        for item in self._page.scan(kind, namespace or ""):
            if selection.matches(item):
                take(decoder.decode(_json(kind, item)))
            if time.monotonic() - began_s > _TURN_S:
                await asyncio.sleep(0)
                began_s = time.monotonic()

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        kind, _ = self._page.kind_for(self._user, "get", resource, namespace or "", name)
        item = self._page.find(kind, namespace or "", name)
        if item is None:
            raise NotFoundError.of(resource.plural, name, group=resource.group)
        return msgspec.json.decode(_json(kind, item), type=resource.type)


def _json(kind: Kind, item: Stored) -> bytes:
    seen = item if kind.view is None else kind.view.see_now(item)
    return b"{" + seen.tail
