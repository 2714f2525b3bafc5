"""Served objects: reads, applies and deletes objects of any kind by what a server serves.

Objects stay plain, because they are compared and written back whole. A kind that the server does
not serve has no objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from moorage.api.errors import ExpiredError, NotFoundError
from moorage.api.logs import Log
from moorage.api.meta import Raw
from moorage.attach.manifests.identity import Obj
from moorage.wire.client.discovery import NotServedError, ServedKinds
from moorage.wire.client.resources import Resource
from moorage.wire.client.rest import PAGE_SIZE, Client, PatchType

FIELD_MANAGER = "moorage-attach"

log = Log(__name__)


class ServedObjects:
    """Access to objects of any kind. Each method raises StatusError and UnreachableError."""

    def __init__(self, client: Client) -> None:
        self.client = client
        # Definitions that an attachment installs add kinds.
        self._kinds = ServedKinds(client, follows=True)

    async def resource(self, api_version: str, kind: str) -> Resource[Any]:
        """Return the resource of a kind. Raises NotServedError."""
        return await self._kinds.resource(api_version, kind)

    async def get(self, obj: Obj) -> Obj | None:
        """Return the server's object of the same kind, namespace and name; None without one."""
        try:
            path = await self._path(obj)
            return _decoded(await self.client.request("GET", path))
        except (NotServedError, NotFoundError):
            return None

    async def apply(self, obj: Obj, *, is_dry_run: bool = False) -> Obj:
        """Apply an object, taking over its fields from others. Returns the server's.

        Raises NotServedError; NotFoundError for a namespace that does not exist.
        """
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        if is_dry_run:
            query["dryRun"] = "All"
        body = await self.client.request(
            "PATCH",
            await self._path(obj),
            body=msgspec.json.encode(obj),
            content_type=PatchType.APPLY.value,
            query=query,
        )
        return _decoded(body)

    async def delete(self, obj: Obj, *, propagation: str = "Background") -> bool:
        """Delete an object of the server; its `uid` must be that given. False if it is gone."""
        options: Raw = {"kind": "DeleteOptions", "apiVersion": "v1"}
        options["propagationPolicy"] = propagation
        if uid := obj["metadata"].get("uid"):
            options["preconditions"] = {"uid": uid}
        try:
            await self.client.request(
                "DELETE", await self._path(obj), body=msgspec.json.encode(options)
            )
        except (NotServedError, NotFoundError):
            return False
        return True

    async def patch(self, obj: Obj, patch: Any, kind: PatchType, *, subresource: str = "") -> Obj:
        """Patch an object, or its subresource. Raises NotFoundError if it is gone."""
        path = await self._path(obj)
        body = await self.client.request(
            "PATCH",
            f"{path}/{subresource}" if subresource else path,
            body=msgspec.json.encode(patch),
            content_type=kind.value,
            query={"fieldManager": FIELD_MANAGER},
        )
        return _decoded(body)

    async def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[Obj]:
        """Yield the objects of a kind with `apiVersion` and `kind`; none if it is not served."""
        try:
            resource = await self.resource(api_version, kind)
        except NotServedError:
            return
        token = ""
        while True:
            body = await self.client.request(
                "GET",
                resource.path(namespace or None),
                query={
                    "labelSelector": label_selector,
                    "fieldSelector": field_selector,
                    "limit": str(PAGE_SIZE),
                    "continue": token,
                },
            )
            page = _decoded(body)
            for item in page.get("items") or ():
                yield {"apiVersion": api_version, "kind": kind, **item}
            token = page.get("metadata", {}).get("continue", "")
            if not token:
                return

    async def each(
        self, api_version: str, kind: str, change: Callable[[Obj], Awaitable[None]]
    ) -> None:
        """Call a function with each object of a kind, once the one before is done.

        A list is kept for some minutes. Where changes take longer it is read again from its start,
        so that the function gets some objects twice, as they are then: it must have nothing to do
        for those that it has changed. Raises ExpiredError when that gets no further.
        """
        furthest = 0
        while True:
            count = 0
            try:
                async for obj in self.list(api_version, kind):
                    await change(obj)
                    count += 1
            except ExpiredError as error:
                if count <= furthest:
                    raise
                log.debug("list is read again", kind=kind, reason=error)
                furthest = count
            else:
                return

    async def _path(self, obj: Obj) -> str:
        resource = await self.resource(obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        return resource.path(metadata.get("namespace"), metadata["name"])


def name_of(obj: Obj) -> str:
    """Return an object's name for a reader: `Kind NAMESPACE/NAME`."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{obj['kind']} {namespace + '/' if namespace else ''}{metadata['name']}"


def key_of(obj: Obj) -> tuple[str, str, str]:
    """Return the identity of an object: kind, namespace, name."""
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]


def _decoded(body: bytes) -> Raw:
    decoded: Raw = msgspec.json.decode(body)
    return decoded
