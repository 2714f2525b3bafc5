"""Reader seam: reads objects with the rights of the user who looks at the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from moorage.api.meta import Object
from moorage.wire.client.resources import Resource

T = TypeVar("T", bound=Object)


class Reader(Protocol):
    """Reads objects on behalf of one user."""

    async def visit(
        self,
        resource: Resource[T],
        take: Callable[[T], None],
        namespace: str | None = None,
        *,
        field_selector: str = "",
    ) -> None:
        """Call `take` with each object of a namespace, or of all; none is kept here.

        Raises ForbiddenError where the user may not list them, NotFoundError where the server has
        no such resource.
        """

    async def get(self, resource: Resource[T], name: str, namespace: str | None = None) -> T:
        """Return an object. Raises ForbiddenError, NotFoundError."""
