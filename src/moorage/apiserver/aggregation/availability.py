"""Availability of extension servers: the condition `Available` of their APIServices.

Each is looked at when its APIService, service or endpoints change, and every 30 s; one that fails
more often at first. Source: kube-aggregator `controllers/status/remote`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator

from moorage.api.clock import Clock, format_time
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.apiserver.aggregation.backend import Backends, FetchError
from moorage.apiserver.aggregation.services import Extension, extension_of
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.apiservice import API_SERVICE
from moorage.apiserver.registry.kinds.endpoints import ENDPOINT_SLICE
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.storage import Change

_TABLE = API_SERVICE.prefix("")
_WATCHED = (_TABLE, SERVICE.prefix(""), ENDPOINT_SLICE.prefix(""))
_SERVICE_NAME = "kubernetes.io/service-name"
_EVERY_S = 30.0
_FIRST_RETRY_S = 0.5
_ANSWER_S = 5.0
_ATTEMPTS = 5
_AT_A_TIME = 16
_OK = range(200, 300)
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))

log = Log(__name__)


class Availability:
    """Keeps the condition of every APIService that names a service. Give `changed` to the store."""

    def __init__(self, objects: Objects, backends: Backends, clock: Clock) -> None:
        self._objects = objects
        self._backends = backends
        self._clock = clock
        self._wake: dict[str, asyncio.Event] = {}
        self._found = asyncio.Event()
        self._room = asyncio.Semaphore(_AT_A_TIME)

    def changed(self, changes: Iterable[Change]) -> None:
        """Look again at the extensions that changes may concern."""
        keys = [change.key for change in changes if change.key.startswith(_WATCHED)]
        if keys:
            self._found.set()
            for wake in self._wake.values():
                wake.set()

    async def run(self) -> None:
        """Look after the extensions there are, until cancelled: one task for each."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._found.clear()
                for extension in self._extensions():
                    if extension.name not in self._wake:
                        self._wake[extension.name] = asyncio.Event()
                        tasks.create_task(self._follow(extension.name))
                await self._found.wait()

    def _extensions(self) -> Iterator[Extension]:
        for item in self._objects.scan(API_SERVICE, ""):
            extension = extension_of(item.obj)
            if extension is not None:
                yield extension

    async def _follow(self, name: str) -> None:
        """Look at one extension until its APIService is gone or local."""
        wake, retry_s = self._wake[name], _FIRST_RETRY_S
        try:
            while True:
                wake.clear()
                extension = self._extension(name)
                if extension is None:
                    return
                condition = await self.condition_of(extension)
                try:
                    await self._write(extension, condition)
                except (ConflictError, NotFoundError):
                    continue
                except StatusError as error:
                    log.warning("availability not written", apiservice=name, error=error)
                wait_s = _EVERY_S if condition["status"] == "True" else retry_s
                try:
                    async with asyncio.timeout(wait_s):
                        await wake.wait()
                    # Something has changed: it may be there in a moment.
                    retry_s = _FIRST_RETRY_S
                except TimeoutError:
                    retry_s = min(2 * retry_s, _EVERY_S)
        finally:
            del self._wake[name]

    def _extension(self, name: str) -> Extension | None:
        item = self._objects.find(API_SERVICE, "", name)
        return None if item is None else extension_of(item.obj)

    async def condition_of(self, extension: Extension) -> Obj:
        """Return the condition of an extension, by its service, endpoints and an answer of it."""
        place = f'service/{extension.service} in "{extension.namespace}"'
        service = self._objects.find(SERVICE, extension.namespace, extension.service)
        if service is None:
            return _unavailable("ServiceNotFound", f"{place} is not present")
        spec = service.obj["spec"]
        if spec.get("type", "ClusterIP") == "ClusterIP":
            port = next(
                (port for port in spec.get("ports", ()) if port["port"] == extension.port), None
            )
            if port is None:
                why = f"{place} is not listening on port {extension.port}"
                return _unavailable("ServicePortError", why)
            slices = list(self._slices(extension))
            if not slices:
                return _unavailable("EndpointsNotFound", f"cannot find endpointslices for {place}")
            name = port.get("name", "")
            if not any(_has_endpoint(slice_, name) for slice_ in slices):
                why = f"endpointslices for {place} have no addresses with port name "
                return _unavailable("MissingEndpoints", why + json.dumps(name))
        async with self._room:
            why = await self._failure(extension)
        if why:
            return _unavailable("FailedDiscoveryCheck", why)
        return _condition("True", "Passed", "all checks passed")

    def _slices(self, extension: Extension) -> Iterator[Obj]:
        for item in self._objects.scan(ENDPOINT_SLICE, extension.namespace):
            if item.labels.get(_SERVICE_NAME) == extension.service:
                yield item.obj

    async def _failure(self, extension: Extension) -> str:
        """Return why an extension does not answer as it must, empty if it does."""
        last = ""
        try:
            async with asyncio.timeout(_ANSWER_S):
                for _ in range(_ATTEMPTS):
                    last = await self._attempt(extension)
                    if not last:
                        break
        except TimeoutError:
            last = last or f"timed out waiting for {extension.path}"
        return last

    async def _attempt(self, extension: Extension) -> str:
        try:
            url = self._backends.url(extension, extension.path)
            answer = await self._backends.fetch(extension, extension.path, _ANSWER_S, {})
        except StatusError as error:
            return error.message
        except FetchError as error:
            return f"failing or missing response from {url}: {error}"
        if answer.status not in _OK:
            bad = f"bad status from {url}: {answer.status}"
            return f"failing or missing response from {url}: {bad}"
        return ""

    async def _write(self, extension: Extension, condition: Obj) -> None:
        """Write a condition if it is new. Raises StatusError."""
        item = self._objects.get(API_SERVICE, "", extension.name)
        api_service = item.obj
        conditions = api_service.setdefault("status", {}).setdefault("conditions", [])
        known = next((one for one in conditions if one.get("type") == condition["type"]), None)
        now = format_time(self._clock.now())
        if known is None:
            conditions.append({**condition, "lastTransitionTime": now})
        elif all(known.get(key, "") == value for key, value in condition.items()):
            return
        else:
            if known.get("status") != condition["status"]:
                known["lastTransitionTime"] = now
            known |= condition
        request = Request(user=_USER, is_own=True, user_agent="apiserver/aggregation")
        kind = API_SERVICE
        await self._objects.update(
            request, kind, kind.storage, "", extension.name, lambda _: api_service,
            subresource="status",
        )  # fmt: skip


def _has_endpoint(slice_: Obj, port: str) -> bool:
    is_ready = any(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for endpoint in slice_.get("endpoints") or ()
    )
    return is_ready and any(
        (entry.get("name") or "") == port and entry.get("port")
        for entry in slice_.get("ports") or ()
    )


def _condition(status: str, reason: str, message: str) -> Obj:
    return {"type": "Available", "status": status, "reason": reason, "message": message}


def _unavailable(reason: str, message: str) -> Obj:
    return _condition("False", reason, message)
