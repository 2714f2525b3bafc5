"""Keeper of flow control's objects: the default ones exist and are right, conditions are true.

The default objects are created at start and looked at when one of them changes and every minute.
Each FlowSchema's condition `Dangling` says whether its priority level is missing. Source:
kube-apiserver `registry/flowcontrol/rest`, apiserver `util/flowcontrol` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from moorage.api.clock import Clock, format_time
from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.apiserver.flow_control.control import CONFIGURATION_TABLES, FlowControl
from moorage.apiserver.flow_control.defaults import default_objects
from moorage.apiserver.flow_control.upkeep import is_unwanted, level_of, revised, with_dangling
from moorage.apiserver.registry.deletion import DeleteOptions
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA
from moorage.apiserver.registry.kinds.prioritylevelconfiguration import PRIORITY_LEVEL_CONFIGURATION
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.storage import Change

INTERVAL_S = 60.0
_PRODUCER = "api-priority-and-fairness-config-producer-v1"
_CONSUMER = "api-priority-and-fairness-config-consumer-v1"
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))
# Someone who writes a condition again and again makes the server do so once in this time.
_PAUSE_S = 1.0
_AT_ONCE = 64

_Step = Callable[[], Coroutine[Any, Any, None]]

log = Log(__name__)


class FlowKeeper:
    """Keeps the objects of one store."""

    def __init__(self, objects: Objects, control: FlowControl, clock: Clock) -> None:
        self._objects = objects
        self._control = control
        self._clock = clock
        self._has_changed = asyncio.Event()

    def changed(self, changes: list[Change]) -> None:
        """Listen to the store: look at the objects when one has changed."""
        if any(change.key.startswith(CONFIGURATION_TABLES) for change in changes):
            self._has_changed.set()

    async def run(self) -> None:
        """Keep the objects until cancelled."""
        while True:
            self._has_changed.clear()
            await self.ensure()
            await self.write_conditions()
            await self._clock.sleep(_PAUSE_S)
            try:
                async with asyncio.timeout(INTERVAL_S):
                    await self._has_changed.wait()
            except TimeoutError:
                continue

    async def ensure(self) -> None:
        """Create and restore the default objects, and remove those of older versions."""
        steps: list[_Step] = []
        names: dict[str, set[str]] = {}
        for kind, default, is_mandatory in default_objects():
            name = default["metadata"]["name"]
            names.setdefault(kind.plural, set()).add(name)
            item = self._objects.find(kind, "", name)
            if item is None:
                steps.append(self._creation(kind, default))
            elif revised(kind, item.obj, default, is_mandatory=is_mandatory) is not None:
                steps.append(self._revision(kind, default, is_mandatory=is_mandatory))
        for kind in (FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION):
            for item in self._objects.scan(kind, ""):
                if item.name not in names[kind.plural] and is_unwanted(item.obj):
                    steps.append(self._removal(kind, item.name))
        await _run(steps)

    async def write_conditions(self) -> None:
        """Write the condition `Dangling` of the flow schemas where it is not true."""
        self._control.refresh()
        steps = [
            self._condition(item.name)
            for item in self._objects.scan(FLOW_SCHEMA, "")
            if self._with_condition(item.obj) is not None
        ]
        await _run(steps)

    def _with_condition(self, present: Obj) -> Obj | None:
        is_dangling = not self._control.has_level(level_of(present))
        now = format_time(self._clock.now())
        return with_dangling(present, is_dangling=is_dangling, now=now)

    def _creation(self, kind: Kind, default: Obj) -> _Step:
        async def create() -> None:
            obj = copy.deepcopy(default)
            kind.strategy.default(obj)
            await self._objects.create(_request(_PRODUCER), kind, kind.storage, "", obj)

        return create

    def _revision(self, kind: Kind, default: Obj, *, is_mandatory: bool) -> _Step:
        def make_new(present: Obj | None) -> Obj:
            assert present is not None
            return revised(kind, present, default, is_mandatory=is_mandatory) or present

        return self._update(kind, default["metadata"]["name"], _PRODUCER, make_new)

    def _condition(self, name: str) -> _Step:
        def make_new(present: Obj | None) -> Obj:
            assert present is not None
            return self._with_condition(present) or present

        return self._update(FLOW_SCHEMA, name, _CONSUMER, make_new, "status")

    def _update(
        self,
        kind: Kind,
        name: str,
        manager: str,
        make_new: Callable[[Obj | None], Obj],
        subresource: str = "",
    ) -> _Step:
        async def update() -> None:
            await self._objects.update(
                _request(manager), kind, kind.storage, "", name, make_new,
                subresource=subresource, is_patch=True,
            )  # fmt: skip

        return update

    def _removal(self, kind: Kind, name: str) -> _Step:
        async def remove() -> None:
            await self._objects.delete(
                _request(_PRODUCER), kind, kind.storage, "", name, DeleteOptions()
            )

        return remove


async def _run(steps: Sequence[_Step]) -> None:
    """Take steps, so many at a time that they share commits."""
    for start in range(0, len(steps), _AT_ONCE):
        await asyncio.gather(*(_taken(step) for step in steps[start : start + _AT_ONCE]))


async def _taken(step: _Step) -> None:
    """Take a step. One that fails is taken again with the next look at the objects."""
    try:
        await step()
    except (AlreadyExistsError, ConflictError, NotFoundError) as error:
        # Another server of the store, or a user, was faster.
        log.debug("object of flow control changed meanwhile", error=error)
    except StatusError as error:
        log.warning("object of flow control is not kept", error=error)


def _request(manager: str) -> Request:
    return Request(
        user=_USER, is_own=True, user_agent="apiserver/flow-control", field_manager=manager
    )
