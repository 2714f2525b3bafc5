"""API reader: reads objects from an API server, with the credentials of its client.

A page of a list has at most `MOST_PAGE_BYTES`, whatever users put into their objects, so that a
page of the site holds one of these at a time, and what it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from moorage.api.errors import TooLargeError
from moorage.api.meta import Object
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client

T = TypeVar("T", bound=Object)

MOST_OBJECTS = 200_000
"""Limit on the objects of one list; Kubernetes is made for 150,000 pods."""

MOST_PAGE_BYTES = 8 * 1024 * 1024
"""Limit on the bytes of a page of a list, and of an object. API servers store up to 1.5 MiB of one,
which JSON may make longer."""


class ApiReader:
    """Reads with one client, whose identity is that of the user who looks."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def visit(
        self,
        resource: Resource[T],
        take: Callable[[T], None],
        namespace: str | None = None,
        *,
        field_selector: str = "",
    ) -> None:
        """Call `take` with each object of a namespace, or of all, by namespace and name.

        Raises TooLargeError for more than MOST_OBJECTS, and as `Client.pages` does.
        """
        count = 0
        async for page in self._client.pages(
            resource, namespace, field_selector=field_selector, most_bytes=MOST_PAGE_BYTES
        ):
            count += len(page.items)
            if count > MOST_OBJECTS:
                raise TooLargeError(f"the page reads at most {MOST_OBJECTS} {resource.plural}")
            for item in page.items:
                take(item)

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return an object. Raises as `Client.get` does."""
        return await self._client.get(resource, name, namespace)
