"""API reader: lists objects from an API server, with the credentials of its client."""

from __future__ import annotations

from typing import TypeVar

from moorage.api.errors import TooLargeError
from moorage.api.meta import Object
from moorage.client.resources import Resource
from moorage.client.rest import Client

T = TypeVar("T", bound=Object)

MOST_OBJECTS = 200_000
"""Limit on the objects of one list; Kubernetes is made for 150,000 pods."""


class ApiReader:
    """Reads with one client, whose identity is that of the user who looks."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(
        self, resource: Resource[T], namespace: str | None = None, *, field_selector: str = ""
    ) -> list[T]:
        """Return the objects of a namespace, or of all, by namespace and name.

        Raises TooLargeError for more than MOST_OBJECTS, and as `Client.list` does.
        """
        items: list[T] = []
        async for page in self._client.pages(resource, namespace, field_selector=field_selector):
            items += page.items
            if len(items) > MOST_OBJECTS:
                raise TooLargeError(f"the page reads at most {MOST_OBJECTS} {resource.plural}")
        return items

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return an object. Raises as `Client.get` does."""
        return await self._client.get(resource, name, namespace)
