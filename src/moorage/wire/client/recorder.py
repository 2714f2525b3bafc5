"""Event recorder: writes events about objects, rate limited for each object.

An event that repeats (same object, type, reason and message) within ten minutes increments the
count of the recorded one. Recording never fails its caller: an event that cannot be sent is
dropped, which the log says at most once a minute, with the number of such events. Source: client-go
`record.EventBroadcaster` defaults.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from moorage.api.clock import Clock, SystemClock, format_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import ObjectReference
from moorage.api.names import dns_subdomain_errors
from moorage.api.text import valid_text
from moorage.wire.client.resources import EVENTS, Resource
from moorage.wire.client.rest import Client, PatchType, UnreachableError, meta_of

NORMAL = "Normal"
WARNING = "Warning"

_QUEUE_LIMIT = 1000
# No caller waits for an event, but the operation it reports (a pod start) needs the same CPUs.
_HOLD_S = 0.2
_REMEMBERED = 4096
_REPEAT_WINDOW_S = 600.0
_BURST = 25
_REFILL_S = 300.0
_MESSAGE_LIMIT = 1024
_DROPS_LOGGED_S = 60.0

log = Log(__name__)


_Key = tuple[ObjectReference, str, str, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    about: ObjectReference
    type: str
    reason: str
    message: str
    moment: datetime
    """When it was recorded, which is what its timestamps say however long the queue is."""
    annotations: Mapping[str, str]

    @property
    def key(self) -> _Key:
        """Return the event's identity, without time and object's revision: repeats are counted."""
        about = msgspec.structs.replace(self.about, resource_version="")
        return about, self.type, self.reason, self.message


@dataclass(slots=True)
class _Sent:
    name: str
    count: int
    first: str
    at: float


@dataclass(slots=True)
class _Allowance:
    tokens: float
    at: float


class _Drops:
    """Events that were dropped for one reason: a line of the log at once, then one a minute."""

    def __init__(self, why: str) -> None:
        self._why = why
        self._count = 0
        self._fields: dict[str, object] = {}
        self._logged_at: float | None = None

    def add(self, now: float, **fields: object) -> None:
        """Count one. `fields` are those of the line; of several events it has the last one's."""
        self._count += 1
        self._fields = fields
        self.log_due(now)

    def log_due(self, now: float) -> None:
        """Log those that no line counts yet, unless the last line is younger than a minute."""
        if self._logged_at is None or now - self._logged_at >= _DROPS_LOGGED_S:
            self.log(now)

    def log(self, now: float) -> None:
        """Log those that no line counts yet."""
        if self._count:
            log.warning(self._why, count=self._count, **self._fields)
            self._count, self._logged_at = 0, now


class EventRecorder:
    """Records the events of one component. `record` queues them, `run` sends them."""

    def __init__(
        self, client: Client, component: str, *, host: str = "", clock: Clock | None = None
    ) -> None:
        self._client = client
        self._component = component
        self._host = host
        self._clock = clock or SystemClock()
        self._queue: asyncio.Queue[_Entry] = asyncio.Queue(_QUEUE_LIMIT)
        self._sent: OrderedDict[_Key, _Sent] = OrderedDict()
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        self._last_stamp = 0
        self._unqueued = _Drops("events dropped: queue full")
        self._unsent = _Drops("events not recorded")

    def record(
        self,
        about: ObjectReference,
        type_: str,
        reason: str,
        message: str,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Queue an event about an object; `type_` is NORMAL or WARNING. Does not block.

        `annotations` are the event's own; those of its first occurrence stay. The message is
        truncated to 1024 characters; what is no text in it is replaced. An event beyond the
        object's rate limit is dropped, and one beyond the queue's limit is dropped and counted in a
        warning of the log.
        """
        text = valid_text(message[:_MESSAGE_LIMIT])
        entry = _Entry(about, type_, reason, text, self._clock.now(), annotations or {})
        if not self._is_allowed(about):
            log.debug("event muted", object=about.name, reason=reason)
            return
        try:
            self._queue.put_nowait(entry)
        except asyncio.QueueFull:
            self._unqueued.add(self._clock.monotonic(), object=about.name, reason=reason)

    async def run(self) -> None:
        """Send queued events until cancelled. Drops and counts those that the server refuses."""
        try:
            while True:
                entry = await self._queue.get()
                await self._clock.sleep(_HOLD_S)
                await self._send_or_drop(entry)
                while not self._queue.empty():
                    await self._send_or_drop(self._queue.get_nowait())
        finally:
            for drops in (self._unqueued, self._unsent):
                drops.log(self._clock.monotonic())

    async def _send_or_drop(self, entry: _Entry) -> None:
        try:
            await self._send(entry)
        except (StatusError, UnreachableError) as error:
            self._unsent.add(self._clock.monotonic(), reason=entry.reason, error=error)
        finally:
            self._queue.task_done()
            for drops in (self._unqueued, self._unsent):
                drops.log_due(self._clock.monotonic())

    async def flush(self) -> None:
        """Block until every queued event has been sent or dropped. `run` must be running."""
        await self._queue.join()

    def _is_allowed(self, about: ObjectReference) -> bool:
        key = about.uid or f"{about.namespace}/{about.name}"
        now = self._clock.monotonic()
        allowance = self._allowances.pop(key, None) or _Allowance(_BURST, now)
        refilled = allowance.tokens + (now - allowance.at) / _REFILL_S
        allowance.tokens, allowance.at = min(_BURST, refilled), now
        self._allowances[key] = allowance
        _trim(self._allowances)
        if allowance.tokens < 1:
            return False
        allowance.tokens -= 1
        return True

    async def _send(self, entry: _Entry) -> None:
        earlier = self._sent.get(entry.key)
        now = self._clock.monotonic()
        if earlier is not None and now - earlier.at < _REPEAT_WINDOW_S:
            try:
                await self._repeat(entry, earlier)
            except NotFoundError:
                earlier = None
            else:
                earlier.at = now
                return
        await self._create(entry, now)

    async def _repeat(self, entry: _Entry, earlier: _Sent) -> None:
        count = earlier.count + 1
        patch = {"count": count, "lastTimestamp": format_time(entry.moment)}
        await self._client.patch(
            EVENTS, earlier.name, patch, _namespace(entry.about), kind=PatchType.STRATEGIC
        )
        earlier.count = count

    async def _create(self, entry: _Entry, now: float) -> None:
        stamp = format_time(entry.moment)
        namespace = _namespace(entry.about)
        # The name is made of the time; events of the same nanosecond need distinct names.
        self._last_stamp = max(int(entry.moment.timestamp() * 1e9), self._last_stamp + 1)
        name = _name_of_event(entry.about.name, self._last_stamp)
        event = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                **({"annotations": dict(entry.annotations)} if entry.annotations else {}),
            },
            "involvedObject": entry.about,
            "reason": entry.reason,
            "message": entry.message,
            "type": entry.type,
            "source": {
                "component": self._component,
                **({"host": self._host} if self._host else {}),
            },
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        await self._client.create(EVENTS, event, namespace)
        self._sent[entry.key] = _Sent(name, 1, stamp, now)
        _trim(self._sent)


def reference(resource: Resource[Any], obj: Any, *, field_path: str = "") -> ObjectReference:
    """Return the reference to an object, for its events."""
    meta = meta_of(obj)
    return ObjectReference(
        kind=resource.kind,
        api_version=resource.api_version,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        field_path=field_path,
    )


def _name_of_event(about: str, stamp: int) -> str:
    """Return a name from the object's; from none, where that would be no name of an object.

    Source: client-go `GenerateEventName`.
    """
    name = f"{about}.{stamp:x}"
    return str(uuid.uuid4()) if dns_subdomain_errors(name) else name


def _namespace(about: ObjectReference) -> str:
    # Events about cluster-scoped objects are stored in the default namespace.
    return about.namespace or "default"


def _trim(remembered: OrderedDict[Any, Any]) -> None:
    while len(remembered) > _REMEMBERED:
        remembered.popitem(last=False)
