"""Scale targets: the `scale` of what an autoscaler refers to, of whatever kind.

Kinds are found by discovery, custom resources among them. Source: autoscaling/v1 Scale; client-go
`scale`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from moorage.api.autoscaling import CrossVersionObjectReference, Scale
from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, NotFoundError
from moorage.wire.client.discovery import preferred_versions, read_version
from moorage.wire.client.resources import PartialObject, Resource
from moorage.wire.client.rest import Client

_REMEMBERED_S = 30.0
_MOST_REMEMBERED = 1024
_WRITES = 5


class TargetError(Exception):
    """The target's kind is not there or not legal; the text says why, in upstream's words."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target and its scale as read; `body` is the whole Scale."""

    path: str
    body: bytes
    scale: Scale


class ScaleTargets:
    """Reads and writes scales. Where a kind is served is remembered for half a minute."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._resources: dict[tuple[str, str], tuple[float, Resource[PartialObject]]] = {}

    async def get(self, reference: CrossVersionObjectReference, namespace: str) -> Target:
        """Return the target. Raises TargetError, StatusError, UnreachableError."""
        resource = await self._resource(reference)
        root, _, plural = resource.path().rpartition("/")
        path = f"{root}/namespaces/{namespace}/{plural}/{quote(reference.name, safe='')}/scale"
        return await self._read(path)

    async def name_resource(self, reference: CrossVersionObjectReference) -> str:
        """Return the qualified plural of a kind. Raises as `get` does."""
        resource = await self._resource(reference)
        return f"{resource.plural}.{resource.group}" if resource.group else resource.plural

    async def put(self, target: Target, replicas: int) -> None:
        """Change the replicas, on a newer scale after a conflict.

        Raises StatusError and UnreachableError.
        """
        for attempt in range(_WRITES):
            scale = msgspec.json.decode(target.body)
            scale.setdefault("spec", {})["replicas"] = replicas
            try:
                await self._client.request("PUT", target.path, body=msgspec.json.encode(scale))
            except ConflictError:
                if attempt == _WRITES - 1:
                    raise
                target = await self._read(target.path)
            else:
                return

    async def _read(self, path: str) -> Target:
        body = await self._client.request("GET", path)
        return Target(path, body, msgspec.json.decode(body, type=Scale))

    async def _resource(self, reference: CrossVersionObjectReference) -> Resource[PartialObject]:
        """Return the resource of a kind, in the group's preferred version."""
        version = reference.api_version
        if version.count("/") > 1:
            raise TargetError(f"unexpected GroupVersion string: {version}")
        key = version.rpartition("/")[0], reference.kind
        now_s = self._clock.monotonic()
        remembered = self._resources.get(key)
        if remembered is not None and now_s - remembered[0] <= _REMEMBERED_S:
            return remembered[1]
        resource = await self._discovered(*key)
        if len(self._resources) >= _MOST_REMEMBERED:
            self._resources.clear()
        self._resources[key] = now_s, resource
        return resource

    async def _discovered(self, group: str, kind: str) -> Resource[PartialObject]:
        try:
            for version in await preferred_versions(self._client, group):
                for served in await read_version(self._client, version):
                    if served.resource.kind == kind:
                        return served.resource
        except NotFoundError:
            pass  # The group is not served: as if it had no such kind.
        raise TargetError(f'no matches for kind "{kind}" in group "{group}"')
