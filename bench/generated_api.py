"""Generated API server: no real one, but LIST and WATCH of objects that are made when asked for.

It stands in for an API server with 5,000 nodes in benchmarks of what watches one: pages of a LIST
are made of an object's number, a WATCH is open until its timeout with a bookmark each minute, and
writes are kept in memory without validation, patches merged. `GET /bench/counts` has the
requests and the last write of each path; `POST /bench/event` sends an object to watchers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from aiohttp import web

from bench import generated_objects as made
from moorage.runtimes.custom_resources.definitions import definitions

Raw = dict[str, Any]

_BOOKMARK_S = 60.0
_NAMESPACES = ("default", "kube-system", "moorage-system")
_VERSIONED = {
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "namespaces": ("v1", "Namespace"),
    "runtimeclasses": ("node.k8s.io/v1", "RuntimeClass"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}


class Collection:
    """Objects of one resource: `count` generated ones, and those that were written."""

    def __init__(self, count: int = 0, make: Callable[[int], Raw] | None = None) -> None:
        self.count = count
        self.make = make
        self.written: dict[str, Raw] = {}
        self.watchers: set[asyncio.Queue[bytes]] = set()

    def items(self, first: int, limit: int) -> Iterator[Raw]:
        """Yield the objects from a number on: written ones are after the generated."""
        for number in range(first, min(first + limit, self.count)):
            assert self.make is not None
            yield self.make(number)
        if first + limit >= self.count:
            yield from self.written.values()

    def send(self, type_: str, obj: Raw) -> None:
        line = msgspec.json.encode({"type": type_, "object": obj}) + b"\n"
        for watcher in self.watchers:
            watcher.put_nowait(line)


class GeneratedApi:
    def __init__(self, nodes: int, pods: int) -> None:
        self.revision = 20_000_000
        self.requests: Counter[str] = Counter()
        self.writes: dict[str, float] = {}
        self.collections: dict[str, Collection] = {
            "nodes": Collection(nodes, made.node),
            "runtimeprofiles": Collection(nodes * len(made.HANDLERS), made.profile),
            "pods": Collection(pods, lambda number: made.pod(number, nodes)),
            "runtimeclasses": Collection(made.CLASSES, made.runtime_class),
            "namespaces": Collection(
                len(_NAMESPACES), lambda number: made.namespace(_NAMESPACES[number])
            ),
        }
        for change in range(made.CHANGES):
            self._put("pods", made.held_pod(change))
            self._put("runtimeclasses", made.new_class(change))
        established = {"conditions": [{"type": "Established", "status": "True"}]}
        for definition in definitions():
            self._put("customresourcedefinitions", definition | {"status": established})

    def _put(self, plural: str, obj: Raw) -> tuple[Raw, bool]:
        collection = self.collections.setdefault(plural, Collection())
        self.revision += 1
        metadata = obj["metadata"] | {"resourceVersion": str(self.revision)}
        version, kind = _VERSIONED.get(plural, ("v1", "Object"))
        stored = {"apiVersion": version, "kind": kind, **obj, "metadata": metadata}
        is_new = metadata["name"] not in collection.written
        collection.written[metadata["name"]] = stored
        return stored, is_new

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == "/bench/counts":
            return _json({"requests": dict(self.requests), "writes": self.writes})
        if path == "/bench/event":
            return await self._event(request)
        if path in ("/readyz", "/livez", "/healthz"):
            return web.Response(text="ok")
        plural, namespace, name = _parts(path)
        collection = self.collections.setdefault(plural, Collection())
        if request.method != "GET":
            self.requests[f"{request.method} {plural}"] += 1
            return await self._write(request, plural, name)
        if name:
            self.requests[f"GET {plural}"] += 1
            found = collection.written.get(name)
            return _json(found) if found else _json(_NOT_FOUND, 404)
        if request.query.get("watch"):
            self.requests[f"WATCH {plural}"] += 1
            return await self._watch(request, collection)
        self.requests[f"LIST {plural}"] += 1
        return self._list(request, collection, namespace)

    def _list(self, request: web.Request, collection: Collection, namespace: str) -> web.Response:
        query = request.query
        first, limit = int(query.get("continue") or 0), int(query.get("limit") or 10**9)
        count = collection.count
        if "Pending" in query.get("fieldSelector", "") or namespace:
            first, limit = count, 1
        metadata = {"resourceVersion": str(self.revision)}
        if first + limit < count:
            metadata["continue"] = str(first + limit)
        return _json({"metadata": metadata, "items": list(collection.items(first, limit))})

    async def _watch(self, request: web.Request, collection: Collection) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        events: asyncio.Queue[bytes] = asyncio.Queue()
        collection.watchers.add(events)
        ends_s = time.monotonic() + float(request.query.get("timeoutSeconds", 1800))
        try:
            while (left_s := ends_s - time.monotonic()) > 0:
                try:
                    async with asyncio.timeout(min(left_s, _BOOKMARK_S)):
                        line = await events.get()
                except TimeoutError:
                    version = {"metadata": {"resourceVersion": str(self.revision)}}
                    line = msgspec.json.encode({"type": "BOOKMARK", "object": version}) + b"\n"
                with contextlib.suppress(ConnectionResetError):
                    await response.write(line)
        finally:
            collection.watchers.discard(events)
        return response

    async def _write(self, request: web.Request, plural: str, name: str) -> web.Response:
        body = msgspec.json.decode(await request.read() or b"{}")
        self.writes[f"{request.method} {request.path}"] = time.monotonic()
        if request.method == "PATCH" and isinstance(body, dict):
            before = self.collections[plural].written.get(name, {"metadata": {"name": name}})
            body = _merged(before, body)
        stored, is_new = self._put(plural, body)
        self.collections[plural].send("ADDED" if is_new else "MODIFIED", stored)
        return _json(stored, 201 if request.method == "POST" else 200)

    async def _event(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        stored, _ = self._put(body["plural"], body["object"])
        self.collections[body["plural"]].send(body["type"], stored)
        return _json({"at": time.monotonic()})


_NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound",
              "code": 404, "message": "not found"}  # fmt: skip


def _json(value: Any, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")


def _parts(path: str) -> tuple[str, str, str]:
    """Return plural, namespace and name of `/api/v1/…` or `/apis/GROUP/VERSION/…`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    return (*parts, "", "")[0], namespace, (*parts, "", "")[1]


_MERGE_KEYS = {"schedulingGates": "name", "conditions": "type"}
"""Lists that a strategic merge patch merges: name → key of an element."""


def _merged_list(before: list[Raw], patch: list[Raw], key: str) -> list[Raw]:
    elements = {element[key]: element for element in before}
    for element in patch:
        if element.get("$patch") == "delete":
            elements.pop(element[key], None)
        else:
            elements[element[key]] = elements.get(element[key], {}) | element
    return list(elements.values())


def _merged(before: Raw, patch: Raw) -> Raw:
    result = dict(before)
    for key, value in patch.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            result[key] = _merged(below, value)
        elif isinstance(value, list) and key in _MERGE_KEYS:
            result[key] = _merged_list(below or [], value, _MERGE_KEYS[key])
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


async def serve(options: argparse.Namespace) -> None:
    api = GeneratedApi(options.nodes, options.pods)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(options.certificate, options.key)
    runner = web.ServerRunner(web.Server(api.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", options.port, ssl_context=context).start()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
