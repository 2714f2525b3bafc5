"""The controller of RuntimeClasses: a class for each handler that a profile says works.

Keys are handlers. The isolation label of a managed class is the weakest level that its nodes have,
and is left out while one of them is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from moorage.api.clock import Clock
from moorage.api.conditions import is_true
from moorage.api.runtime_classes import RuntimeClass
from moorage.api.runtime_profiles import WORKING, RuntimeProfile
from moorage.client import Client, Informer, WorkQueue
from moorage.client.resources import RUNTIME_CLASSES, RUNTIME_PROFILES
from moorage.controllers.informers import wait_synced
from moorage.controllers.runtimeclasses.creation import complete_class, create_classes
from moorage.runtimeclass.isolation import LEVELS

_INDEX = "handler"


class RuntimeClassController:
    """Creates and completes classes for the handlers in RuntimeProfiles."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._profiles = Informer(
            client,
            RUNTIME_PROFILES,
            clock=clock,
            indexes={_INDEX: lambda profile: [profile.spec.handler]},
        )
        self._classes = Informer(client, RUNTIME_CLASSES, clock=clock)
        self._queue: WorkQueue[str] = WorkQueue("runtime classes", clock=clock)
        self._profiles.add_handler(self._profile_changed)
        self._classes.add_handler(self._class_changed)

    async def run(self) -> None:
        """Reconcile until cancelled. The server must serve profiles."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._profiles.run())
            tasks.create_task(self._classes.run())
            await wait_synced(self._profiles, self._classes)
            await self._queue.run(self._reconcile)

    def _profile_changed(self, before: RuntimeProfile | None, after: RuntimeProfile | None) -> None:
        changed = after or before
        if changed is not None:
            self._queue.add(changed.spec.handler)

    def _class_changed(self, before: RuntimeClass | None, after: RuntimeClass | None) -> None:
        del before
        if after is not None:
            self._queue.add(after.handler)

    async def _reconcile(self, handler: str) -> float | None:
        working = [
            profile
            for profile in self._profiles.by_index(_INDEX, handler)
            if is_true(profile.status.conditions, WORKING)
        ]
        if not working:
            return None
        isolation = weakest(profile.status.isolation for profile in working)
        found = self._classes.get(handler)
        if found is None:
            await create_classes(self._client, {handler: isolation})
        elif found.handler == handler:
            await complete_class(self._client, found, isolation)
        return None


def weakest(isolations: Iterable[str]) -> str:
    """Return the weakest of isolation levels; empty if one is unknown, or if there are none."""
    levels = [LEVELS.get(isolation) for isolation in isolations]
    if not levels or None in levels:
        return ""
    return min(level for level in levels if level is not None).label
