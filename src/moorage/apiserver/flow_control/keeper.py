"""Keeper of flow control's objects: the default ones exist and are right, conditions are true.

The default objects are created at start and looked at when one of them changes and every minute.
Each FlowSchema's condition `Dangling` says whether its priority level is missing. Source:
kube-apiserver `registry/flowcontrol/rest`, apiserver `util/flowcontrol` of Kubernetes 1.36.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from moorage.api.clock import Clock, format_time
from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.flow_control import EXEMPT, FlowSchemaSpec, PriorityLevelSpec
from moorage.api.logs import Log
from moorage.api.meta import Object
from moorage.apiserver.endpoints.replies import Reply, text_reply
from moorage.apiserver.flow_control.control import CONFIGURATION_TABLES, Flow, FlowControl
from moorage.apiserver.flow_control.defaults import AUTO_UPDATE, default_objects
from moorage.apiserver.flow_control.seats import Level
from moorage.apiserver.registry.deletion import DeleteOptions
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA
from moorage.apiserver.registry.kinds.prioritylevelconfiguration import PRIORITY_LEVEL_CONFIGURATION
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.storage import Change

# Upkeep of flow control's objects: what has to change about each. Pure functions.
#
# Source: kube-apiserver `registry/flowcontrol/ensurer`, apiserver `util/flowcontrol` of Kubernetes
# 1.36.

T = TypeVar("T", bound=Object)

# Source: Go's `strconv.ParseBool`.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_DANGLING = "Dangling"


def revised(kind: Kind, present: Obj, default: Obj, *, is_mandatory: bool) -> Obj | None:
    """Return a default object as it should be; None if it is.

    Suggested objects keep a specification that a user has changed, which their annotation, or else
    their generation, says.
    """
    metadata = present["metadata"]
    annotations = metadata.get("annotations", {})
    noted = _BOOLEANS.get(annotations.get(AUTO_UPDATE, ""))
    is_restored = is_mandatory or (metadata.get("generation") == 1 if noted is None else noted)
    changed = dict(present)
    if is_restored and not _is_equal(kind, present, default):
        changed["spec"] = copy.deepcopy(default["spec"])
    if noted != is_restored:
        value = "true" if is_restored else "false"
        changed["metadata"] = {**metadata, "annotations": {**annotations, AUTO_UPDATE: value}}
    return changed if changed != present else None


def is_unwanted(present: Obj) -> bool:
    """Return whether an object that is no default says that it was one."""
    annotations = present["metadata"].get("annotations", {})
    return _BOOLEANS.get(annotations.get(AUTO_UPDATE, ""), False)


def with_dangling(present: Obj, *, is_dangling: bool, now: str) -> Obj | None:
    """Return a FlowSchema with the right condition `Dangling`; None if it has it."""
    condition = _condition(level_of(present), is_dangling=is_dangling)
    status = present.get("status", {})
    conditions = status.get("conditions", [])
    for held in conditions:
        if held.get("type") == _DANGLING and held.items() >= condition.items():
            return None
    others = [held for held in conditions if held.get("type") != _DANGLING]
    return {
        **present,
        "status": {**status, "conditions": [*others, {**condition, "lastTransitionTime": now}]},
    }


def level_of(present: Obj) -> str:
    """Return the name of the priority level that a FlowSchema references."""
    spec = _convert(present.get("spec", {}), FlowSchemaSpec)
    return "" if spec is None else spec.priority_level_configuration.name


def _condition(level: str, *, is_dangling: bool) -> Mapping[str, str]:
    named = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    if is_dangling:
        status, reason, message = "True", "NotFound", f"{named} but there is no such object"
    else:
        status, reason, message = "False", "Found", f"{named} and it exists"
    return {"type": _DANGLING, "status": status, "reason": reason, "message": message}


def _is_equal(kind: Kind, present: Obj, default: Obj) -> bool:
    """Return whether the specifications say the same. Users choose the shares of `exempt`."""
    held, wanted = present.get("spec", {}), default["spec"]
    if kind is PRIORITY_LEVEL_CONFIGURATION and default["metadata"]["name"] == EXEMPT:
        return "exempt" in held and held.get("type") == wanted["type"] and "limited" not in held
    type_: type[Object] = FlowSchemaSpec
    if kind is PRIORITY_LEVEL_CONFIGURATION:
        type_ = PriorityLevelSpec
    return _convert(held, type_) == _convert(wanted, type_)


def _convert(spec: Obj, type_: type[T]) -> T | None:
    try:
        return msgspec.convert(spec, type_)
    except msgspec.ValidationError:
        return None


# Dumps of flow control, for people: its priority levels, and the queues in use.
#
# Source: apiserver `/debug/api_priority_and_fairness/dump_priority_levels` and `dump_queues`.

_BELOW = "/debug/api_priority_and_fairness/"
_LEVELS = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests",
    "ExecutingRequests", "DispatchedRequests", "RejectedRequests", "TimedoutRequests",
    "CancelledRequests",
)  # fmt: skip
_QUEUES = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse",
    "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
)  # fmt: skip
_NARROWEST = 8

_Row = Sequence[object]


class FlowDumps:
    """Serves the pages; None for any other path."""

    def __init__(self, control: FlowControl) -> None:
        self._control = control

    def __call__(self, http: web.BaseRequest) -> Reply | None:
        if not http.path.startswith(_BELOW):
            return None
        match http.path.removeprefix(_BELOW):
            case "dump_priority_levels":
                return text_reply(table((_LEVELS, *self._levels())))
            case "dump_queues":
                return text_reply(table((_QUEUES, *self._queues())))
            case _:
                return None

    def _levels(self) -> Iterator[_Row]:
        flows = list(self._control.flows())
        for level in sorted(self._control.pool.levels.values(), key=lambda level: level.name):
            yield _level_row(level, [flow for flow in flows if flow.level is level])

    def _queues(self) -> Iterator[_Row]:
        for level in self._control.pool.levels.values():
            for queue in sorted(level.queues.queues(), key=lambda queue: queue.index):
                waiting = len(queue.requests)
                yield (
                    level.name, queue.index, waiting, queue.executing, queue.executing,
                    f"{queue.start_s:.8f}ss", waiting, waiting, "0.00000000ss",
                )  # fmt: skip


def _level_row(level: Level, flows: list[Flow]) -> _Row:
    active = sum(1 for queue in level.queues.queues() if queue.requests)
    dispatched = sum(flow.dispatched for flow in flows)
    rejected = sum(sum(flow.rejected.values()) for flow in flows)
    timed_out = sum(flow.rejected.get("time-out", 0) for flow in flows)
    return (
        level.name, active, level.is_idle, level.is_leaving, level.queues.waiting, level.in_use,
        dispatched, rejected, 0, timed_out,
    )  # fmt: skip


def table(rows: Iterable[_Row]) -> str:
    """Return rows as text: cells end with a comma, and the last of a row is not padded."""
    lines = [[_shown(cell) for cell in row] for row in rows]
    widths = [
        max(_NARROWEST, *(len(cell) + 2 for cell in column)) for column in zip(*lines, strict=True)
    ]
    return "".join(
        "".join(f"{cell},".ljust(width) for cell, width in zip(line[:-1], widths, strict=False))
        + f"{line[-1]}\n"
        for line in lines
    )


def _shown(cell: object) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


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
