"""An API server of any objects, in memory: what a survey, an attachment and a detachment ask for.

It has no controllers: `after_write` stands in for those that a test needs. Lists come in pages of
two objects, so that every reader of a collection goes on behind the first page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import web

from moorage.api.labels import parse
from moorage.apiserver.registry.patch import apply_json_patch, merge_patch
from moorage.runtimes.custom_resources.installation import CUSTOM_RESOURCE_DEFINITIONS
from moorage.wire.client import resources as client_resources
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.resources import PartialObject, Resource
from moorage.wire.client.rest import Client, PatchType
from tests.wire.client.fake_api import line, refusal
from tests.wire.streaming.servers import serving

Obj = dict[str, Any]

_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_MORE = (
    (_RBAC, "clusterrolebindings", "ClusterRoleBinding", False),
    (_RBAC, "roles", "Role", True),
    (_RBAC, "rolebindings", "RoleBinding", True),
    (_ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
    (_ADMISSION, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False),
    (_ADMISSION, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False),
)
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def _served() -> list[Resource[Any]]:
    known = [one for one in vars(client_resources).values() if isinstance(one, Resource)]
    more = [
        Resource(group, "v1", plural, kind, PartialObject, is_namespaced=is_namespaced)
        for group, plural, kind, is_namespaced in _MORE
    ]
    return [*known, CUSTOM_RESOURCE_DEFINITIONS, *more]


class ObjectServer:
    """Objects by their paths.

    `writes` has method and path of each change that was asked for, but for dry runs, `bodies` what
    was sent, and `queries` those of all requests. `denied` are the verbs and resources, `PLURAL` or
    `PLURAL/SUBRESOURCE`, that the user may not, but for objects of the `allowed_names`; `reviewed`
    has all that was asked about. `logs` are those of pods by name, `failures` answers by method and
    path, each given once. `after_write` is called with the method and an object that was written,
    `on_watch` with the plural of a resource whose watch begins.
    """

    def __init__(self) -> None:
        self.resources = _served()
        self.objects: dict[str, Obj] = {}
        self.writes: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.denied: set[tuple[str, str]] = set()
        self.allowed_names: set[str] = set()
        self.reviewed: list[Obj] = []
        self.queries: list[dict[str, str]] = []
        self.logs: dict[str, str] = {}
        self.failures: dict[tuple[str, str], list[Callable[[], web.Response]]] = {}
        self.after_write: Callable[[str, Obj], None] = lambda _method, _obj: None
        self.on_watch: Callable[[str], None] = lambda _plural: None
        self.page_size = 2
        self._revision = 1
        self._log: list[tuple[int, str, str, Obj]] = []
        self._changed = asyncio.Event()

    def put(self, obj: Obj) -> Obj:
        """Have an object, as it is given with a `uid`; it is returned."""
        resource = self._resource_of(obj)
        path = resource.path(obj["metadata"].get("namespace"), obj["metadata"]["name"])
        before = self.objects.get(path)
        self._revision += 1
        version = {"resourceVersion": str(self._revision)}
        obj = {**obj, "metadata": {"uid": path, **obj["metadata"], **version}}
        self.objects[path] = obj
        self._notify("ADDED" if before is None else "MODIFIED", path, obj)
        return obj

    def remove(self, obj: Obj) -> None:
        """Have an object no longer, whatever its finalizers are."""
        resource = self._resource_of(obj)
        path = resource.path(obj["metadata"].get("namespace"), obj["metadata"]["name"])
        self._revision += 1
        gone = self.objects.pop(path)
        gone["metadata"]["resourceVersion"] = str(self._revision)
        self._notify("DELETED", path, gone)

    def of(self, kind: str) -> dict[str, Obj]:
        """Return the objects of a kind by name."""
        return {
            obj["metadata"]["name"]: obj for obj in self.objects.values() if obj["kind"] == kind
        }

    def _resource_of(self, obj: Obj) -> Resource[Any]:
        place = (obj["apiVersion"], obj["kind"])
        return next(one for one in self.resources if (one.api_version, one.kind) == place)

    def _notify(self, kind: str, path: str, obj: Obj) -> None:
        self._log.append((self._revision, kind, path, deepcopy(obj)))
        self._changed.set()
        self._changed = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path, method = unquote(request.path), request.method
        self.queries.append(dict(request.query))
        if waiting := self.failures.get((method, path)):
            return waiting.pop(0)()
        body = await request.read()
        if path == _REVIEWS:
            return self._review(msgspec.json.decode(body)["spec"])
        if method == "GET" and (document := self._discovery(path)) is not None:
            return web.json_response(document)
        if method != "GET" and "dryRun" not in request.query:
            self.writes.append((method, path))
            self.bodies.append(msgspec.json.decode(body))
        if path.endswith("/log"):
            return web.Response(text=self.logs.get(path.split("/")[-2], ""))
        for resource in self.resources:
            if request.query.get("watch") and _is_below(resource, path):
                return await self._watch(request, path)
            if _is_below(resource, path):
                return self._list(request, path)
        return self._one(request, path, body)

    def _review(self, spec: Obj) -> web.Response:
        self.reviewed.append(spec)
        asked = spec.get("resourceAttributes") or {"resource": "", "verb": "get"}
        plural = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
        is_denied = (asked["verb"], plural) in self.denied
        is_denied = is_denied and asked.get("name") not in self.allowed_names
        is_all = asked["resource"] == "*" and bool(self.denied)
        return web.json_response({"status": {"allowed": not (is_denied or is_all)}})

    def _discovery(self, path: str) -> Obj | None:
        if path == "/version":
            return {"gitVersion": "v1.36.1", "major": "1", "minor": "36"}
        if path == "/api":
            return {"versions": ["v1"]}
        versions: dict[str, list[Resource[Any]]] = {}
        for resource in self.resources:
            versions.setdefault(resource.api_version, []).append(resource)
        if path == "/apis":
            groups = {name.partition("/")[0]: name.partition("/")[2] for name in versions}
            groups.pop("v1")
            return {
                "groups": [
                    {"name": group, "versions": [{"version": version}]}
                    for group, version in groups.items()
                ]
            }
        version = path.removeprefix("/apis/").removeprefix("/api/")
        if version not in versions:
            return None
        verbs = ["list", "get", "delete", "patch", "create", "watch"]
        return {
            "resources": [
                {"name": one.plural, "kind": one.kind, "namespaced": one.is_namespaced,
                 "verbs": verbs}
                for one in versions[version]
            ]
        }  # fmt: skip

    def _list(self, request: web.Request, path: str) -> web.Response:
        # Objects are removed while a list is read: the next page starts behind the last of this.
        after = request.query.get("continue", "")
        found = [
            (place, {key: obj[key] for key in obj.keys() - {"apiVersion", "kind"}})
            for place, obj in sorted(self.objects.items())
            if place > after and _is_in(place, path) and _is_chosen(obj, request.query)
        ]
        metadata = {"resourceVersion": str(self._revision)}
        if len(found) > self.page_size:
            metadata["continue"] = found[self.page_size - 1][0]
        items = [obj for _, obj in found[: self.page_size]]
        return web.json_response({"metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        after = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            self.on_watch(path.rpartition("/")[2])
            while True:
                changed = self._changed
                for revision, kind, place, obj in list(self._log):
                    if revision > after and _is_in(place, path) and _is_chosen(obj, request.query):
                        await response.write(line(kind, obj))
                    after = max(after, revision)
                await changed.wait()
        return response

    def _one(self, request: web.Request, path: str, body: bytes) -> web.StreamResponse:
        is_status = path.endswith("/status")
        path = path.removesuffix("/status")
        before = self.objects.get(path)
        if request.method == "GET" and before is not None:
            return web.json_response(before)
        if request.method == "DELETE" and before is not None:
            return self._delete(before)
        if request.method == "PATCH":
            return self._patch(request, before, msgspec.json.decode(body), is_status)
        return refusal(404, "NotFound", f"{path} not found")()

    def _delete(self, obj: Obj) -> web.Response:
        uid = obj["metadata"]["uid"]
        asked: Obj = self.bodies[-1] or {}
        if asked.get("preconditions", {}).get("uid", uid) != uid:
            return refusal(409, "Conflict", "another uid")()
        if obj["metadata"].get("finalizers"):
            obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            obj = self.put(obj)
        else:
            self.remove(obj)
        self.after_write("DELETE", obj)
        return web.json_response(obj)

    def _patch(
        self, request: web.Request, before: Obj | None, patch: Any, is_status: bool
    ) -> web.Response:
        kind = request.content_type
        is_apply = kind == PatchType.APPLY.value
        if before is None and not is_apply:
            return refusal(404, "NotFound", "not found")()
        namespace = patch["metadata"].get("namespace") if is_apply else None
        if namespace and f"/api/v1/namespaces/{namespace}" not in self.objects:
            return refusal(404, "NotFound", f'namespaces "{namespace}" not found')()
        present = deepcopy(before or {})
        if kind == PatchType.JSON.value:
            after = apply_json_patch(present, patch)
        elif kind == PatchType.STRATEGIC.value:
            after = _merged(present, patch)
        else:
            after = merge_patch(present, patch)
        if is_status:
            after = {**(before or {}), "status": after["status"]}
        if is_apply:
            entry = {"manager": request.query["fieldManager"], "operation": "Apply"}
            after["metadata"]["managedFields"] = [entry]
        if "dryRun" in request.query:
            return web.json_response(after)
        after = self.put(after)
        metadata = after["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            self.remove(after)
        self.after_write("PATCH", after)
        return web.json_response(after)


def _is_below(resource: Resource[Any], path: str) -> bool:
    """Return whether a path is that of a collection of a resource."""
    if path == resource.path():
        return True
    parts = path.split("/")
    return (
        resource.is_namespaced
        and parts[-3:-2] == ["namespaces"]
        and (path == resource.path(parts[-2]))
    )


def _is_in(place: str, collection: str) -> bool:
    """Return whether an object's path is in a collection, of a namespace or of all."""
    head, _, _ = place.rpartition("/")
    if head == collection:
        return True
    root, _, rest = head.partition("/namespaces/")
    return bool(rest) and f"{root}/{rest.partition('/')[2]}" == collection


def _is_chosen(obj: Obj, query: Mapping[str, str]) -> bool:
    return parse(query.get("labelSelector", "")).matches(obj["metadata"].get("labels") or {})


def _merged(present: Any, patch: Any) -> Any:
    """Return a strategic merge: lists of objects are merged by `type` or `name`."""
    if isinstance(patch, dict):
        base = present if isinstance(present, dict) else {}
        return base | {key: _merged(base.get(key), value) for key, value in patch.items()}
    if isinstance(patch, list) and patch and isinstance(patch[0], dict):
        key = "type" if "type" in patch[0] else "name"
        items = {item[key]: item for item in present or ()}
        for item in patch:
            if item.get("$patch") == "delete":
                items.pop(item[key], None)
            else:
                items[item[key]] = _merged(items.get(item[key]), item)
        return list(items.values())
    return patch


@asynccontextmanager
async def running() -> AsyncIterator[tuple[ObjectServer, Client]]:
    """The server and a client of it."""
    server = ObjectServer()
    async with serving(server.handle) as url:
        config = ClientConfig(server=url.rstrip("/"))
        async with Client(config, user_agent="test") as client:
            yield server, client
