"""Collections: the objects that a quota counts, listed from the API.

The controllers' copies leave out what is charged, so these are read whole, of one namespace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from moorage.api.errors import ForbiddenError, MethodNotAllowedError, NotFoundError
from moorage.apiserver.quota import Charge, charge_of
from moorage.wire.client.discovery import discover
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import Client

_COUNT = "count/"
_BY_NAME = ("configmaps", "replicationcontrollers", "resourcequotas", "secrets")
_CHARGED = ("pods", "services", "persistentvolumeclaims")


def counted_resources(names: Sequence[str]) -> list[str]:
    """Return the qualified names of the resources that a quota on these resources is about."""
    found = [resource for resource in _CHARGED if charge_of(resource).concerned(names)]
    for name in names:
        resource = name.removeprefix(_COUNT)
        if (name.startswith(_COUNT) or name in _BY_NAME) and resource not in found:
            found.append(resource)
    return found


class Collections:
    """Lists the objects of resources, which it finds by discovery."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._resources: dict[str, Resource[Any]] = {}

    async def objects(self, resource: str, charge: Charge, namespace: str) -> Sequence[Any]:
        """Return the objects of a namespace; none of a resource that is not served.

        Raises StatusError and UnreachableError.
        """
        found = await self._find(resource)
        if found is None:
            return ()
        try:
            listed = await self._client.list(replace(found, type=charge.type), namespace)
        except (NotFoundError, MethodNotAllowedError, ForbiddenError):
            # Its definition is gone, or it is not stored.
            del self._resources[resource]
            return ()
        return listed.items

    async def _find(self, resource: str) -> Resource[Any] | None:
        if resource not in self._resources:
            discovered = await discover(self._client)
            self._resources = {
                f"{one.plural}.{one.group}" if one.group else one.plural: one
                for one in discovered.with_verbs("list")
                if one.is_namespaced
            }
        return self._resources.get(resource)
