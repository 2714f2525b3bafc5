"""Custom resource definitions at work: accepts names, serves kinds, removes instances.

Part of the API server, as upstream's apiextensions controllers are: a definition is served the
moment its condition Established is stored. Source: apiextensions controllers `status`, `establish`
and `finalizer` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.custom.conversion import Post
from moorage.apiserver.registry.custom.definition import CustomKind, kinds_of
from moorage.apiserver.registry.custom.formats import PatternError
from moorage.apiserver.registry.custom.names import NameConflict, accepted_names
from moorage.apiserver.registry.custom.printer_columns import PathError
from moorage.apiserver.registry.custom.versions import Conversions
from moorage.apiserver.registry.deletion import DeleteOptions
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.customresourcedefinition import (
    CLEANUP,
    CUSTOM_RESOURCE_DEFINITION,
)
from moorage.apiserver.registry.kinds.customresourcedefinition.conditions import (
    APPROVAL_CONDITION,
    approval_condition,
    is_established,
    remove_condition,
    set_condition,
)
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.ownership import Ownership
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.server.request_deadlines import CallLimits
from moorage.apiserver.storage import Change, WatchCache

_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))
_USER_AGENT = "apiextensions"
_PREFIX = CUSTOM_RESOURCE_DEFINITION.prefix("")
_RETRY_S = 1.0
_TERMINATING = "create not allowed while custom resource definition is terminating"

log = Log(__name__)


class _Served(msgspec.Struct, frozen=True):
    """What is served of a definition, and the part of the definition that it was made of."""

    custom: CustomKind
    form: Obj


def _form(definition: Obj) -> Obj:
    return {"spec": definition["spec"], "names": definition["status"].get("acceptedNames")}


class CustomResources:
    """Follows the definitions in the store. Call `load` when the cache is loaded, then `run`."""

    def __init__(
        self,
        *,
        resource_map: ResourceMap,
        objects: Objects,
        cache: WatchCache[Stored],
        codec: Codec,
        ownership: Ownership,
        clock: Clock,
        post: Post,
        calls: CallLimits,
    ) -> None:
        """`post` calls conversion webhooks."""
        self._calls = calls
        self._resource_map = resource_map
        self._objects = objects
        self._cache = cache
        self._codec = codec
        self._ownership = ownership
        self._clock = clock
        self._post = post
        self._served: dict[str, _Served] = {}
        self._conversions: Conversions
        self._changed: asyncio.Queue[str] = asyncio.Queue()

    def load(self) -> None:
        """Serve the definitions that are established, and look at all of them again in `run`."""
        self._conversions = Conversions(
            asyncio.get_running_loop(),
            see_s=self._calls.conversions_s,
            batch=self._calls.conversion_batch,
        )
        for item in self._cache.scan(_PREFIX):
            definition = item.obj
            if is_established(definition):
                try:
                    self._serve(definition, self._kinds_of(definition))
                except (PatternError, PathError, RecursionError) as error:
                    log.error("definition cannot be served", definition=item.name, error=error)
            self._changed.put_nowait(item.name)

    def close(self) -> None:
        """End the threads that wait for conversions."""
        self._conversions.threads.shutdown(wait=False, cancel_futures=True)

    def _kinds_of(self, definition: Obj) -> CustomKind:
        return kinds_of(definition, self._conversions, self._post)

    def on_changes(self, changes: list[Change]) -> None:
        """Queue the definitions that changed. A listener of the store."""
        for change in changes:
            if change.key.startswith(_PREFIX):
                self._changed.put_nowait(change.key.removeprefix(_PREFIX))

    async def run(self) -> None:
        """Bring each changed definition to what its object says, until cancelled."""
        while True:
            name = await self._changed.get()
            try:
                await self._settle(name)
            except ConflictError:
                self._changed.put_nowait(name)
            except NotFoundError:
                self._withdraw(name)
            except StatusError as error:
                log.warning("definition not settled", definition=name, error=error)
                await self._clock.sleep(_RETRY_S)
                self._changed.put_nowait(name)
            except Exception:
                # One bad definition must not keep the others, and the server, from working.
                log.exception("definition not settled", definition=name)

    async def _settle(self, name: str) -> None:
        item = self._cache.get(CUSTOM_RESOURCE_DEFINITION.key("", name))
        if item is None:
            self._withdraw(name)
            return
        definition = item.obj
        if "deletionTimestamp" in definition["metadata"]:
            if CLEANUP in definition["metadata"].get("finalizers", ()):
                await self._clean_up(definition)
            return
        before = _summary(definition.setdefault("status", {}))
        self._accept(definition)
        if is_established(definition):
            # Compiling a large schema takes long. Served before the condition is stored: clients
            # wait for it and create instances at once.
            served = self._served.get(name)
            if served is None or served.form != _form(definition):
                self._serve(definition, await asyncio.to_thread(self._kinds_of, definition))
        if _summary(definition["status"]) != before:
            await self._write(definition, "status")

    def _accept(self, definition: Obj) -> None:
        """Set accepted names, stored versions and conditions in the status of a definition."""
        status = definition["status"]
        names, conflict = accepted_names(definition, self._others(definition))
        spec = definition["spec"]
        if self._resource_map.is_own(spec["group"], spec["names"]["plural"]):
            text = f'"{spec["names"]["plural"]}" is already in use'
            names, conflict = {}, NameConflict("PluralConflict", text)
        status["acceptedNames"] = names
        now = format_time(self._clock.now())
        stored = _stored_versions(definition)
        status["storedVersions"] = stored
        conditions = status.setdefault("conditions", [])
        if conflict is None:
            set_condition(
                conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now
            )
            if not is_established(definition):
                set_condition(
                    conditions, "Established", "True", "InitialNamesAccepted",
                    "the initial names have been accepted", now,
                )  # fmt: skip
        else:
            set_condition(
                conditions, "NamesAccepted", "False", conflict.reason, conflict.message, now
            )
            if not is_established(definition):
                set_condition(
                    conditions, "Established", "False", "NotAccepted",
                    "not all names are accepted", now,
                )  # fmt: skip
        approval = approval_condition(definition)
        if approval is None:
            remove_condition(conditions, APPROVAL_CONDITION)
        else:
            set_condition(conditions, APPROVAL_CONDITION, *approval, now)

    def _others(self, definition: Obj) -> Iterable[Obj]:
        """Return the other definitions of the same group."""
        name, group = definition["metadata"]["name"], definition["spec"]["group"]
        for item in self._cache.scan(_PREFIX):
            other = item.obj
            if item.name != name and other["spec"]["group"] == group:
                yield other

    def _serve(self, definition: Obj, custom: CustomKind) -> None:
        name = definition["metadata"]["name"]
        before = self._served.get(name)
        if before is not None:
            self._forget_types(before.custom)
        for type_ in custom.types:
            self._codec.add_custom(type_, custom.merge_types[type_.name])
        self._served[name] = _Served(custom, _form(definition))
        self._resource_map.put_custom(name, custom.kinds)
        if before is not None:
            # Watches go on with what the definition says now, as upstream's do.
            self._cache.finish_watches(custom.kinds[0].prefix(""))

    def _withdraw(self, name: str) -> None:
        served = self._served.pop(name, None)
        if served is not None:
            self._resource_map.remove_custom(name)
            self._forget_types(served.custom)
            self._cache.finish_watches(served.custom.kinds[0].prefix(""))

    def _forget_types(self, custom: CustomKind) -> None:
        for type_ in custom.types:
            names = [merge_type.name for merge_type in custom.merge_types[type_.name]]
            self._codec.remove_custom(type_.name, names)
            self._ownership.forget(names)

    async def _clean_up(self, definition: Obj) -> None:
        """Delete the instances; remove the finalizer when none remains, else look again later."""
        name = definition["metadata"]["name"]
        now = format_time(self._clock.now())
        served = self._served.get(name)
        if served is not None:
            self._refuse_new(name, served.custom)
            if set_condition(
                definition["status"]["conditions"], "Terminating", "True",
                "InstanceDeletionInProgress", "CustomResource deletion is in progress", now,
            ):  # fmt: skip
                # The change brings the definition back here.
                await self._write(definition, "status")
                return
            if await self._delete_all(served.custom.kinds[0]):
                await self._clock.sleep(_RETRY_S)
                self._changed.put_nowait(name)
                return
        set_condition(
            definition["status"]["conditions"], "Terminating", "False",
            "InstanceDeletionCompleted", "removed all instances", now,
        )  # fmt: skip
        await self._write(definition, "status")
        fresh = self._objects.get(CUSTOM_RESOURCE_DEFINITION, "", name).obj
        finalizers = fresh["metadata"].get("finalizers", [])
        fresh["metadata"]["finalizers"] = [entry for entry in finalizers if entry != CLEANUP]
        await self._write(fresh, "")

    def _refuse_new(self, name: str, custom: CustomKind) -> None:
        """Serve the kinds of a definition that ends without creation."""
        kinds = tuple(replace(kind, refuses_new=_TERMINATING) for kind in custom.kinds)
        if self._resource_map.custom(name) != kinds:
            self._resource_map.put_custom(name, kinds)

    async def _delete_all(self, kind: Kind) -> bool:
        """Delete every instance of a kind; return whether some remain, held by finalizers."""
        for item in self._cache.scan(kind.prefix("")):
            try:
                await self._objects.delete(
                    _request(), kind, kind.storage, item.namespace, item.name, DeleteOptions()
                )
            except NotFoundError:
                continue
        return bool(self._cache.scan(kind.prefix("")))

    async def _write(self, definition: Obj, subresource: str) -> None:
        """Write a definition whose `metadata.resourceVersion` is that of the cache."""
        name = definition["metadata"]["name"]
        kind = CUSTOM_RESOURCE_DEFINITION
        await self._objects.update(
            _request(), kind, kind.storage, "", name, lambda _: definition, subresource=subresource
        )


def _request() -> Request:
    return Request(user=_USER, is_own=True, user_agent=_USER_AGENT)


def _summary(status: Obj) -> Obj:
    """Return a copy of what this part writes of a status, times aside."""
    return {
        "acceptedNames": status.get("acceptedNames"),
        "storedVersions": list(status.get("storedVersions", ())),
        "conditions": {
            entry["type"]: (entry["status"], entry.get("reason"), entry.get("message"))
            for entry in status.get("conditions", ())
        },
    }


def _stored_versions(definition: Obj) -> list[str]:
    """Return the versions in which objects may be stored: those of before, and today's."""
    stored = list(definition["status"].get("storedVersions", ()))
    today = next(v["name"] for v in definition["spec"]["versions"] if v["storage"])
    return stored if today in stored else [*stored, today]
