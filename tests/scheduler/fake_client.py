"""An API server in memory, behind the client's methods that the scheduler uses."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from moorage.api.errors import ConflictError, ForbiddenError, NotFoundError
from moorage.api.meta import ListMeta, Object
from moorage.api.nodes import Node
from moorage.api.pods import Pod
from moorage.wire.client.informer import object_key
from moorage.wire.client.resources import (
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    Resource,
)
from moorage.wire.client.rest import ObjectList, WatchEvent


class FakeClient:
    """Stores typed objects, notifies watchers, and keeps what was written for the test to see.

    `refused` are names of pods whose binding fails once; bindings of those in `slow` do not end,
    and are in `waiting` once begun. `races` are called before the next patches of volumes and
    claims, each once. Deletions of those in `undeletable` fail once. With
    `keeps_victims`, deleted pods stay until the test removes them.
    """

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Any]] = defaultdict(dict)
        self._watchers: dict[str, list[asyncio.Queue[WatchEvent[Any]]]] = defaultdict(list)
        self._revision = 1
        self._changed = asyncio.Event()
        self.events: list[dict[str, Any]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.refused: set[str] = set()
        self.slow: set[str] = set()
        self.waiting: set[str] = set()
        self.keeps_victims = False
        self.undeletable: set[str] = set()
        self.deleted: list[str] = []
        self.races: list[Callable[[], None]] = []

    # what the test does

    def put(self, *objects: Object) -> None:
        for obj in objects:
            self._put(_resource_of(obj), obj)

    def remove(self, obj: Object) -> None:
        self._remove(_resource_of(obj), object_key(obj.metadata))  # type: ignore[attr-defined]

    def find(self, resource: Resource[Any], key: str) -> Any:
        """Return an object by its namespace and name. Raises KeyError."""
        return self._objects[resource.plural][key]

    def all(self, resource: Resource[Any]) -> list[Any]:
        return list(self._objects[resource.plural].values())

    def pod(self, name: str) -> Pod:
        result: Pod = self._objects[PODS.plural][f"default/{name}"]
        return result

    def has_pod(self, name: str) -> bool:
        return f"default/{name}" in self._objects[PODS.plural]

    def events_about(self, name: str) -> list[tuple[str, str, str]]:
        """(type, reason, message) of a pod's events."""
        return [
            (event["type"], event["reason"], event["message"])
            for event in self.events
            if event["involvedObject"].name == name
        ]

    async def until(self, condition: Any) -> None:
        """Return when something holds; fail with what is there after five seconds."""
        try:
            async with asyncio.timeout(5):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"events {self.events}\npatches {self.patches}") from None

    async def until_bound(self, name: str) -> str:
        await self.until(lambda: self.pod(name).spec.node_name)
        return self.pod(name).spec.node_name

    async def until_event(self, name: str, reason: str) -> str:
        def found() -> list[str]:
            return [text for _, why, text in self.events_about(name) if why == reason]

        await self.until(found)
        return found()[-1]

    # what the client does

    async def pages(
        self, resource: Resource[Any], *_: Any, **__: Any
    ) -> AsyncIterator[ObjectList[Any]]:
        yield await self.list(resource)

    async def list(self, resource: Resource[Any], *_: Any, **__: Any) -> ObjectList[Any]:
        items = list(self._objects[resource.plural].values())
        return ObjectList(items, ListMeta(resource_version=str(self._revision)))

    async def watch(
        self, resource: Resource[Any], *_: Any, **__: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        queue: asyncio.Queue[WatchEvent[Any]] = asyncio.Queue()
        self._watchers[resource.plural].append(queue)
        while True:
            yield await queue.get()

    async def create(
        self,
        resource: Resource[Any],
        obj: Any,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        name: str | None = None,
    ) -> Any:
        await asyncio.sleep(0)
        if resource is EVENTS:
            self.events.append(obj)
            self._changed.set()
            return None
        assert (resource.kind, subresource) == ("Binding", "binding")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        assert resource.path(namespace, name, subresource) == path
        if name in self.slow:
            self.waiting.add(name)
            self._changed.set()
            await asyncio.Event().wait()
        key = f"{namespace}/{name}"
        pod: Pod | None = self._objects[PODS.plural].get(key)
        if pod is None:
            raise NotFoundError.of("pods", str(name))
        if name in self.refused or pod.spec.node_name:
            self.refused.discard(str(name))
            raise ConflictError("it is refused")
        assert obj["metadata"]["uid"] == pod.metadata.uid
        bound = msgspec.structs.replace(pod.spec, node_name=obj["target"]["name"])
        self._put(PODS, msgspec.structs.replace(pod, spec=bound))
        return None

    async def patch(
        self, resource: Resource[Any], name: str, patch: Any, namespace: str = "", **_: Any
    ) -> Any:
        await asyncio.sleep(0)
        if resource is EVENTS:
            return None
        if resource in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS):
            return self._patch_storage(resource, name, patch, namespace)
        key = f"{namespace}/{name}"
        pod: Pod | None = self._objects[PODS.plural].get(key)
        if pod is None:
            raise NotFoundError.of("pods", name)
        self.patches.append((name, patch))
        wire = msgspec.to_builtins(pod)
        written = patch.get("status", {})
        conditions = {
            condition["type"]: condition for condition in wire["status"].get("conditions", ())
        }
        conditions |= {condition["type"]: condition for condition in written.get("conditions", ())}
        wire["status"]["conditions"] = list(conditions.values())
        if "nominatedNodeName" in written:
            wire["status"]["nominatedNodeName"] = written["nominatedNodeName"] or ""
        self._put(PODS, msgspec.convert(wire, Pod))
        return None

    async def delete(
        self, resource: Resource[Any], name: str, namespace: str, *, uid: str | None = None
    ) -> None:
        await asyncio.sleep(0)
        pod: Pod = self._objects[PODS.plural][f"{namespace}/{name}"]
        assert uid == pod.metadata.uid
        if name in self.undeletable:
            self.undeletable.discard(name)
            raise ForbiddenError("it may not be deleted")
        self.deleted.append(name)
        self._changed.set()
        if not self.keeps_victims:
            self._remove(resource, f"{namespace}/{name}")

    def _patch_storage(self, resource: Resource[Any], name: str, patch: Any, namespace: str) -> Any:
        """Merge annotations and specification, as the revision that the patch names allows."""
        if self.races:
            self.races.pop(0)()
        self.patches.append((name, patch))
        obj = self._objects[resource.plural].get(f"{namespace}/{name}" if namespace else name)
        if obj is None:
            raise NotFoundError.of(resource.plural, name)
        meta, changes = obj.metadata, patch["metadata"]
        revision = changes.get("resourceVersion", meta.resource_version)
        if (changes["uid"], revision) != (meta.uid, meta.resource_version):
            raise ConflictError("it has changed")
        wire = msgspec.to_builtins(obj)
        annotations = {**meta.annotations, **changes.get("annotations", {})}
        wire["metadata"]["annotations"] = annotations
        wire["spec"] |= patch.get("spec", {})
        self._put(resource, msgspec.convert(wire, resource.type))
        return self._objects[resource.plural][object_key(meta)]

    # storage

    def _put(self, resource: Resource[Any], obj: Any) -> None:
        self._revision += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self._revision))
        stored = msgspec.structs.replace(obj, metadata=meta)
        self._objects[resource.plural][object_key(meta)] = stored
        self._notify(resource, "MODIFIED", stored)

    def _remove(self, resource: Resource[Any], key: str) -> None:
        self._revision += 1
        self._notify(resource, "DELETED", self._objects[resource.plural].pop(key))

    def _notify(self, resource: Resource[Any], kind: str, obj: Any) -> None:
        for queue in self._watchers[resource.plural]:
            queue.put_nowait(WatchEvent(kind, obj, str(self._revision)))
        self._changed.set()


def _resource_of(obj: Object) -> Resource[Any]:
    if isinstance(obj, Pod):
        return PODS
    if isinstance(obj, Node):
        return NODES
    kinds: dict[Any, Resource[Any]] = {
        resource.type: resource
        for resource in (
            RUNTIME_CLASSES,
            NAMESPACES,
            POD_DISRUPTION_BUDGETS,
            STORAGE_CLASSES,
            PERSISTENT_VOLUMES,
            PERSISTENT_VOLUME_CLAIMS,
        )
    }
    return kinds[type(obj)]
