"""Custom resources beside a built-in kind of the same shape: `.venv/bin/python -m bench.custom`.

Decodes, creates, shows and lists Deployments, and custom resources whose schema is as large and
which hold the same, in this process: microseconds of processor time for each object, without HTTP
and without the commit's fsync, which are the same for both.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from moorage.api.clock import SystemClock
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.endpoints.negotiation import PLAIN
from moorage.apiserver.endpoints.representations import list_bytes, object_bytes
from moorage.apiserver.registry.codec import Codec, Media
from moorage.apiserver.registry.custom.definition import kinds_of
from moorage.apiserver.registry.custom.versions import Conversions
from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.kinds import STORED_KINDS
from moorage.apiserver.registry.kinds.deployment import DEPLOYMENT
from moorage.apiserver.registry.listing import Lister, ListOptions
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.ownership import Ownership
from moorage.apiserver.registry.request import Request, User
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.selection import select
from moorage.apiserver.registry.stored import Stored, StoredFactory
from moorage.apiserver.registry.worker import Worker
from moorage.apiserver.storage import SqliteStore, WatchCache

OBJECTS = 1000
ROUNDS = 5
STRING = {"type": "string"}
LABELS = {"type": "object", "additionalProperties": STRING}
CONTAINER: dict[str, Any] = {
    "type": "object", "required": ["name"],
    "properties": {
        "name": STRING, "image": STRING, "command": {"type": "array", "items": STRING},
        "env": {
            "type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"],
                      "properties": {"name": STRING, "value": STRING}},
        },
        "resources": {
            "type": "object",
            "properties": {"limits": LABELS, "requests": LABELS},
        },
    },
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object", "required": ["selector"],
            "properties": {
                "replicas": {"type": "integer", "default": 1, "minimum": 0},
                "selector": {"type": "object", "properties": {"matchLabels": LABELS}},
                "template": {
                    "type": "object",
                    "properties": {
                        "metadata": {"type": "object", "properties": {"labels": LABELS}},
                        "spec": {"type": "object", "properties": {
                            "containers": {"type": "array", "items": CONTAINER,
                                           "x-kubernetes-list-type": "map",
                                           "x-kubernetes-list-map-keys": ["name"]},
                        }},
                    },
                },
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}  # fmt: skip
DEFINITION: dict[str, Any] = {
    "metadata": {"name": "apps.bench.example.com", "uid": "1", "generation": 1},
    "spec": {
        "group": "bench.example.com", "scope": "Namespaced",
        "names": {"plural": "apps", "kind": "App"},
        "versions": [{"name": "v1", "served": True, "storage": True,
                      "schema": {"openAPIV3Schema": SCHEMA}, "subresources": {"status": {}}}],
    },
    "status": {"acceptedNames": {"plural": "apps", "kind": "App", "listKind": "AppList"},
               "storedVersions": ["v1"]},
}  # fmt: skip


class _Admission:
    async def mutate(self, attributes: object) -> None: ...

    async def validate(self, attributes: object) -> None: ...


def _body(api_version: str, kind: str, name: str) -> bytes:
    env = [{"name": f"VARIABLE_{index}", "value": "x" * 20} for index in range(8)]
    limits = {"cpu": "100m", "memory": "64Mi"}
    container = {"image": "registry.example/app:1", "command": ["run", "--fast"], "env": env,
                 "resources": {"limits": limits, "requests": limits}}  # fmt: skip
    labels = {"app": "web", "tier": "front"}
    spec = {
        "replicas": 3, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [
            {"name": "a", **container}, {"name": "b", **container},
        ]}},
    }  # fmt: skip
    document = {"apiVersion": api_version, "kind": kind, "spec": spec,
                "metadata": {"name": name, "labels": labels}}  # fmt: skip
    return json.dumps(document).encode()


def _timed(step: Callable[[], object], count: int) -> float:
    """Return the microseconds of processor time of a step for each object, the best of several."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        step()
        best = min(best, time.process_time() - start)
    return best / count * 1e6


async def _measure(directory: Path) -> None:
    async with SqliteStore(directory / "bench.db") as store:
        factory = StoredFactory(STORED_KINDS)
        cache: WatchCache[Stored] = WatchCache(store, factory)
        await cache.load()
        codec, worker, clock = Codec(load_schema()), Worker(), SystemClock()
        objects = Objects(
            store=store, cache=cache, factory=factory, ownership=Ownership(codec, clock),
            admission=_Admission(), clock=clock, worker=worker, evaluator=Evaluator(),
        )  # fmt: skip

        async def post(_: object, body: bytes) -> bytes:
            return body

        custom = kinds_of(DEFINITION, Conversions(asyncio.get_running_loop()), post)
        for type_ in custom.types:
            codec.add_custom(type_, custom.merge_types[type_.name])
        print(f"{'':14}{'decode':>10}{'create':>10}{'get':>10}{'list':>10}   bytes")
        lister = Lister(store, cache, factory)
        for kind in (DEPLOYMENT, custom.kinds[0]):
            await _of_kind(kind, kind.storage, codec, objects, lister)
        worker.close()


async def _of_kind(
    kind: Kind, served: Served, codec: Codec, objects: Objects, lister: Lister
) -> None:
    bodies = [_body(served.api_version, kind.name, f"o{index}") for index in range(OBJECTS)]

    def decode() -> None:
        for body in bodies:
            codec.decode(kind, served, body, Media.JSON)

    decode_us = _timed(decode, OBJECTS)
    decoded = [codec.decode(kind, served, body, Media.JSON).obj for body in bodies]
    request = Request(user=User(name="bench"), user_agent="bench", is_dry_run=True)
    start = time.process_time()
    for obj in decoded:
        await objects.create(request, kind, served, "default", obj)
    create_us = (time.process_time() - start) / OBJECTS * 1e6
    request.is_dry_run = False
    fresh = [codec.decode(kind, served, body, Media.JSON).obj for body in bodies]
    await asyncio.gather(*(objects.create(request, kind, served, "default", obj) for obj in fresh))
    items = objects.scan(kind, "default")

    def get() -> None:
        for item in items:
            object_bytes(codec, kind, served, item, PLAIN, {})

    listed = await lister.page(kind, "default", ListOptions(selection=select(kind, served, "", "")))

    def list_all() -> None:
        list_bytes(codec, kind, served, listed, PLAIN, {})

    get_us, list_us = _timed(get, OBJECTS), _timed(list_all, OBJECTS)
    print(
        f"{kind.name:14}{decode_us:10.1f}{create_us:10.1f}{get_us:10.2f}{list_us:10.2f}"
        f"   {len(items[0].tail)}"
    )


def main() -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(_measure(Path(directory)))


if __name__ == "__main__":
    main()
