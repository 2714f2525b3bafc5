"""An API server in memory, behind the client's methods that controllers use, and time that stands.

It keeps objects as JSON and knows what controllers rely on: names, uids, revisions, preconditions,
merge patches, conditions merged by type, owner references merged by uid, finalizers. `requests` is
all that was asked for, in order; `failures` are raised in place of the next requests that match.
"""

from __future__ import annotations

import asyncio
import copy
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.api.clock import format_time
from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError
from moorage.api.meta import ListMeta, Object
from moorage.controllers.informers import Informers
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import EVENTS, Resource
from moorage.wire.client.rest import ObjectList, PatchType, WatchEvent
from tests.clocks import FakeClock, settle

Json = dict[str, Any]
_NEWER = {
    "networking.k8s.io": ("servicecidrs", "ipaddresses"),
    "storage.k8s.io": ("volumeattributesclasses",),
}
"""Kinds that older servers lack, by group."""
_MERGED = {"conditions": "type", "ownerReferences": "uid", "schedulingGates": "name"}


@dataclass(frozen=True)
class Request:
    """One request: the verb, the plural, `namespace/name`, and what was sent."""

    verb: str
    plural: str
    key: str
    body: Any = None
    more: Mapping[str, Any] = field(default_factory=dict)


class MemoryClient:
    """Stores objects, announces changes to watchers, records requests."""

    def __init__(self, clock: FakeClock) -> None:
        self.requests: list[Request] = []
        self.failures: list[tuple[str, str, Exception]] = []
        """(verb, plural, error), each raised once."""
        self.answers: dict[tuple[str, str], bytes | Exception] = {}
        """Answers to `request`, by method and path."""
        self.shows: Callable[[Resource[Any], Json], bool] = lambda *_: True
        """Whether watchers are sent a change of an object; a watch that is late is sent none."""
        self._clock = clock
        self._objects: dict[str, dict[str, Json]] = defaultdict(dict)
        self._watchers: dict[str, list[asyncio.Queue[tuple[str, Json]]]] = defaultdict(list)
        self._revision = 1
        self._uids = 0

    # What the test does.

    def put(self, resource: Resource[Any], obj: Json | Object) -> None:
        """Store an object as it is; without a uid it gets its name as one."""
        wire: Json = msgspec.to_builtins(obj)
        if resource.is_namespaced:
            wire["metadata"].setdefault("namespace", "default")
        self._store(resource, wire)

    def drop(self, resource: Resource[Any], name: str, namespace: str = "default") -> None:
        """Take an object away, as its deletion's end."""
        self._remove(resource, _key(resource, name, namespace))

    def put_unseen(self, resource: Resource[Any], obj: Json) -> None:
        """Store an object as it is, its revision too, and send watchers nothing."""
        meta = obj["metadata"]
        if resource.is_namespaced:
            meta.setdefault("namespace", "default")
        self._objects[resource.plural][_key(resource, meta["name"], meta.get("namespace", ""))] = (
            obj
        )

    def drop_unseen(self, resource: Resource[Any], name: str, namespace: str = "default") -> None:
        """Remove an object, and send watchers nothing."""
        del self._objects[resource.plural][_key(resource, name, namespace)]

    def send(self, resource: Resource[Any], kind: str, wire: Json) -> None:
        """Send watchers a change, whatever is stored."""
        for queue in self._watchers[resource.plural]:
            queue.put_nowait((kind, copy.deepcopy(wire)))

    def watch_count(self, plural: str) -> int:
        """Return how many watches of a kind were opened."""
        return len(self._watchers[plural])

    def unread(self, plural: str) -> int:
        """Return how many changes the watchers of a kind have not read."""
        return sum(queue.qsize() for queue in self._watchers[plural])

    def find(self, resource: Resource[Any], name: str, namespace: str = "default") -> Json | None:
        return self._objects[resource.plural].get(_key(resource, name, namespace))

    def names(self, resource: Resource[Any]) -> list[str]:
        return sorted(obj["metadata"]["name"] for obj in self._objects[resource.plural].values())

    def all(self, resource: Resource[Any]) -> list[Json]:
        return list(self._objects[resource.plural].values())

    def asked(self, verb: str, resource: Resource[Any] | None = None) -> list[Request]:
        """The requests of a verb since the start, or since `requests` was cleared."""
        return [
            request
            for request in self.requests
            if request.verb == verb and (resource is None or request.plural == resource.plural)
        ]

    @property
    def writes(self) -> list[Request]:
        return [
            request for request in self.requests
            if request.verb not in ("get", "list", "watch", "request")
            and request.plural != EVENTS.plural
        ]  # fmt: skip

    @property
    def events(self) -> list[tuple[str, str, str, str]]:
        """(object, type, reason, message) of every event written."""
        return [
            (request.body["involvedObject"].name, request.body["type"], request.body["reason"],
             request.body["message"])
            for request in self.asked("create", EVENTS)
        ]  # fmt: skip

    # What the client does.

    async def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        await self._ask("get", resource, name, namespace)
        return self.typed(resource, self._found(resource, name, namespace))

    async def list(
        self, resource: Resource[Any], namespace: str | None = None, **more: Any
    ) -> ObjectList[Any]:
        await self._ask("list", resource, "", namespace, None, more)
        items = [
            self.typed(resource, obj)
            for obj in self._objects[resource.plural].values()
            if not namespace or obj["metadata"]["namespace"] == namespace
            if _is_selected(obj, more.get("field_selector"))
        ]
        return ObjectList(items, ListMeta(resource_version=str(self._revision)))

    async def pages(
        self, resource: Resource[Any], namespace: str | None = None, **more: Any
    ) -> AsyncIterator[ObjectList[Any]]:
        yield await self.list(resource, namespace, **more)

    async def watch(
        self, resource: Resource[Any], *_: Any, **more: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue()
        self._watchers[resource.plural].append(queue)
        while True:
            kind, wire = await queue.get()
            if not _is_selected(wire, more.get("field_selector")):
                continue
            version = wire["metadata"]["resourceVersion"]
            yield WatchEvent(kind, self.typed(resource, wire), version)

    async def create(
        self, resource: Resource[Any], obj: Any, namespace: str | None = None, **more: Any
    ) -> Any:
        wire: Json = msgspec.to_builtins(obj)
        meta = wire["metadata"]
        if "name" not in meta:
            self._uids += 1
            meta["name"] = f"{meta['generateName']}{self._uids:05}"
        await self._ask("create", resource, meta["name"], namespace, obj, more)
        if resource is EVENTS:
            return None
        if resource.is_namespaced:
            meta.setdefault("namespace", namespace)
        if self.find(resource, meta["name"], namespace or "") is not None:
            raise AlreadyExistsError(f'{resource.plural} "{meta["name"]}" already exists')
        self._uids += 1
        meta |= {"uid": f"u{self._uids}", "creationTimestamp": format_time(self._clock.now())}
        return self.typed(resource, self._store(resource, wire))

    async def patch(
        self, resource: Resource[Any], name: str, patch: Any, namespace: str | None = None,
        **more: Any,
    ) -> Any:  # fmt: skip
        await self._ask("patch", resource, name, namespace, patch, more)
        if resource is EVENTS:
            return None
        wire = copy.deepcopy(self._found(resource, name, namespace))
        changes = msgspec.to_builtins(patch)
        self._check(wire, changes.get("metadata") or {})
        is_strategic = more.get("kind") is PatchType.STRATEGIC
        for precondition in ("uid", "resourceVersion"):
            changes.get("metadata", {}).pop(precondition, None)
        merged = _merged(wire, changes, is_strategic)
        has_lost = wire["metadata"].get("finalizers") and not merged["metadata"].get("finalizers")
        result = self.typed(resource, self._store(resource, merged))
        if has_lost and "deletionTimestamp" in merged["metadata"]:
            self._remove(resource, _key(resource, name, namespace or ""))
        return result

    async def update(
        self, resource: Resource[Any], obj: Any, name: str, namespace: str | None = None,
        **more: Any,
    ) -> Any:  # fmt: skip
        await self._ask("update", resource, name, namespace, obj, more)
        self._check(self._found(resource, name, namespace), obj["metadata"])
        return self.typed(resource, self._store(resource, copy.deepcopy(obj)))

    async def delete(
        self, resource: Resource[Any], name: str, namespace: str | None = None, **more: Any
    ) -> None:
        await self._ask("delete", resource, name, namespace, None, more)
        obj = self._found(resource, name, namespace)
        preconditions = {"uid": more.get("uid"), "resourceVersion": more.get("resource_version")}
        self._check(obj, preconditions)
        if obj["metadata"].get("finalizers"):
            meta = {"deletionTimestamp": format_time(self._clock.now()), **obj["metadata"]}
            self._store(resource, {**obj, "metadata": meta})
        else:
            self._remove(resource, _key(resource, name, namespace or ""))

    async def delete_collection(
        self, resource: Resource[Any], namespace: str | None = None, **more: Any
    ) -> None:
        await self._ask("deletecollection", resource, "", namespace, None, more)
        for key, wire in list(self._objects[resource.plural].items()):
            if wire["metadata"].get("namespace") == namespace and not wire["metadata"].get(
                "finalizers"
            ):
                self._remove(resource, key)

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        await asyncio.sleep(0)
        # What a server serves changes nothing.
        if path.removeprefix("/apis/").count("/") > 1:
            self.requests.append(Request("request", method, path, None, more))
        answer = self.answers[method, path]
        if isinstance(answer, Exception):
            raise answer
        return answer

    # How it is kept.

    async def _ask(
        self, verb: str, resource: Resource[Any], name: str, namespace: str | None,
        body: Any = None, more: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        await asyncio.sleep(0)
        key = _key(resource, name, namespace or "")
        self.requests.append(Request(verb, resource.plural, key, copy.deepcopy(body), more or {}))
        for failure in self.failures:
            if failure[:2] == (verb, resource.plural):
                self.failures.remove(failure)
                raise failure[2]

    def _found(self, resource: Resource[Any], name: str, namespace: str | None) -> Json:
        result = self._objects[resource.plural].get(_key(resource, name, namespace or ""))
        if result is None:
            raise NotFoundError.of(resource.plural, name)
        return result

    @staticmethod
    def _check(wire: Json, preconditions: Json) -> None:
        for name in ("uid", "resourceVersion"):
            wanted = preconditions.get(name)
            if wanted and wanted != wire["metadata"].get(name):
                raise ConflictError(f"the {name} is {wire['metadata'].get(name)}, not {wanted}")

    def _store(self, resource: Resource[Any], wire: Json) -> Json:
        meta = wire["metadata"]
        meta.setdefault("uid", meta["name"])
        key = _key(resource, meta["name"], meta.get("namespace", ""))
        kind = "MODIFIED" if key in self._objects[resource.plural] else "ADDED"
        self._revision += 1
        meta["resourceVersion"] = str(self._revision)
        self._objects[resource.plural][key] = wire
        self._announce(resource, kind, wire)
        return wire

    def _remove(self, resource: Resource[Any], key: str) -> None:
        self._revision += 1
        wire = copy.deepcopy(self._objects[resource.plural].pop(key))
        wire["metadata"]["resourceVersion"] = str(self._revision)
        self._announce(resource, "DELETED", wire)

    def _announce(self, resource: Resource[Any], kind: str, wire: Json) -> None:
        if self.shows(resource, wire):
            self.send(resource, kind, wire)

    @staticmethod
    def typed(resource: Resource[Any], wire: Json) -> Any:
        """Return an object as the client would."""
        return msgspec.convert(copy.deepcopy(wire), resource.type)


def _key(resource: Resource[Any], name: str, namespace: str) -> str:
    return f"{namespace}/{name}" if resource.is_namespaced and namespace else name


def _is_selected(obj: Json, selector: str | None) -> bool:
    """Return whether an object has the name and the involved object that a selector wants."""
    for requirement in (selector or "").split(","):
        path, _, wanted = requirement.partition("=")
        if path != "metadata.name" and not path.startswith("involvedObject."):
            continue
        value: Any = obj
        for part in path.split("."):
            value = value.get(part) or {}
        if (value or "") != wanted.removeprefix("="):
            return False
    return True


def _merged(base: Any, patch: Any, is_strategic: bool) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif is_strategic and name == "finalizers":
            merged[name] = [*merged.get(name, ()), *value]
        elif is_strategic and name == "$deleteFromPrimitiveList/finalizers":
            kept = [item for item in merged.get("finalizers", ()) if item not in value]
            merged["finalizers"] = kept
        elif is_strategic and name in _MERGED:
            by_key = {item[_MERGED[name]]: item for item in merged.get(name, ())}
            for element in value:
                if element.get("$patch") == "delete":
                    by_key.pop(element[_MERGED[name]], None)
                else:
                    whole = {**by_key.get(element[_MERGED[name]], {}), **element}
                    by_key[element[_MERGED[name]]] = {
                        key: field for key, field in whole.items() if field is not None
                    }
            merged[name] = list(by_key.values())
        else:
            merged[name] = _merged(merged.get(name), value, is_strategic)
    return merged


class World:
    """A client, informers and recorders on one clock, to build controllers with."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.client: Any = MemoryClient(self.clock)
        for group, plurals in _NEWER.items():
            resources = [{"name": plural} for plural in plurals]
            document = msgspec.json.encode({"resources": resources})
            self.client.answers["GET", f"/apis/{group}/v1"] = document
        client: Any = self.client
        self.informers = Informers(client, self.clock)
        self.recorder = EventRecorder(client, "test", clock=self.clock)

    @asynccontextmanager
    async def running(self, *loops: Any) -> AsyncIterator[MemoryClient]:
        """Run informers, events and these controllers' loops until they have nothing to do."""
        tasks = [
            asyncio.create_task(runner)
            for runner in (*loops, self.informers.run(), self.recorder.run())
        ]
        try:
            await self.settled()
            yield self.client
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        broken = [result for result in results if not isinstance(result, asyncio.CancelledError)]
        assert not broken, broken

    async def settled(self, seconds: float = 0) -> None:
        """Let time pass, and then all go on that can go on without more of it."""
        await settle(200)
        if seconds:
            self.clock.advance(seconds)
            await settle(200)
