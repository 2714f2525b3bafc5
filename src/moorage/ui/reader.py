"""Reader seam: lists objects with the rights of the user who looks at the page."""

from __future__ import annotations

from typing import Protocol, TypeVar

from moorage.api.meta import Object
from moorage.client.resources import Resource

T = TypeVar("T", bound=Object)


class Reader(Protocol):
    """Reads objects on behalf of one user."""

    async def list(
        self, resource: Resource[T], namespace: str | None = None, *, field_selector: str = ""
    ) -> list[T]:
        """Return the objects of a namespace, or of all, by namespace and name.

        Raises ForbiddenError where the user may not list them, NotFoundError where the server has
        no such resource.
        """

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return an object. Raises ForbiddenError, NotFoundError."""
