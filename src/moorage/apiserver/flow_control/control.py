"""Flow control of one server: gives each request a seat, lets it wait for one, or refuses it.

The configuration is read again when an object of it changed, before the next request. Hot path: a
request that finds a free seat costs a lookup, an object and a few additions (bench/requests.py).
Source: KEP-1040, apiserver `WithPriorityAndFairness`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from moorage.api.clock import Clock
from moorage.api.flow_control import FlowSchema, PriorityLevelConfiguration
from moorage.api.logs import Log
from moorage.api.meta import Object
from moorage.apiserver.endpoints.routing import Target
from moorage.apiserver.flow_control.classifier import Classifier, distinguisher_of
from moorage.apiserver.flow_control.configuration import Configuration, SchemaConfiguration, digest
from moorage.apiserver.flow_control.fair_queues import Queue, flow_hash, hand_of
from moorage.apiserver.flow_control.seats import Level, SeatPool
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA
from moorage.apiserver.registry.kinds.prioritylevelconfiguration import PRIORITY_LEVEL_CONFIGURATION
from moorage.apiserver.registry.request import User
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.typed import TypedReader
from moorage.apiserver.storage import Change, WatchCache
from moorage.wire.serving import Budget

SEATS = 600
"""Requests at a time. Source: kube-apiserver, the sum of `--max-requests-inflight` and
`--max-mutating-requests-inflight`."""

# The part of all seats that one user may have at a time. Upstream has no such limit; there, one
# user's slow requests can hold every seat that is not kept for another level.
_PARTS = 4

WAIT_S = 15.0
"""How long a request waits at most: upstream's quarter of `--request-timeout`."""

_LEVEL_UID = "X-Kubernetes-Pf-Prioritylevel-Uid"
_SCHEMA_UID = "X-Kubernetes-Pf-Flowschema-Uid"
CONFIGURATION_TABLES = tuple(
    f"{kind.table}/" for kind in (FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION)
)
"""Beginnings of the keys of the objects that configure flow control."""

# A configuration of more schemas is not read at each change: reading one takes 10 µs.
_READ_AT_ONCE = 200
_PAUSE_PER_SCHEMA_S = 0.0005

T = TypeVar("T", bound=Object)

log = Log(__name__)


class Flow:
    """The requests of one flow schema at one level, and how many there were.

    `headers` and `lines`, the same as text, go with every answer to them. `rejected` is by reason.
    `seat` stands for each seat of a request that did not have to wait.
    """

    __slots__ = (
        "dispatched", "executing", "headers", "level", "lines", "rejected", "schema", "seat",
        "waiting",
    )  # fmt: skip

    def __init__(self, owner: FlowControl, level: Level) -> None:
        self.level = level
        self.seat = Seat(owner, self)
        self.schema: SchemaConfiguration
        self.headers: Mapping[str, str] = {}
        self.lines = ""
        self.dispatched = 0
        self.executing = 0
        self.waiting = 0
        self.rejected: dict[str, int] = {}

    def configure(self, schema: SchemaConfiguration, level_uid: str) -> None:
        """Set the schema, and the headers by which clients learn of it: UIDs, not names."""
        self.schema = schema
        self.headers = {_SCHEMA_UID: schema.uid, _LEVEL_UID: level_uid}
        self.lines = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())

    def reject(self, reason: str) -> None:
        """Count a request that is refused."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1


class Seat:
    """A seat of a request, or its place in a queue. `queue` is the one that it waited in."""

    __slots__ = ("_future", "_granted_s", "_owner", "_share", "flow", "queue")

    def __init__(self, owner: FlowControl, flow: Flow, share: str = "") -> None:
        self._owner = owner
        self.flow = flow
        self.queue: Queue | None = None
        self._future: asyncio.Future[bool] | None = None
        self._share = share
        self._granted_s = 0.0

    def leave(self, share: str) -> None:
        """Return the seat, of the user with that share. To be called once. Hot path."""
        flow, owner = self.flow, self._owner
        level = flow.level
        flow.executing -= 1
        if share:
            owner.shares.give_back(share)
        if self.queue is not None:
            level.queues.finish(self.queue, owner.clock.monotonic() - self._granted_s)
        owner.pool.give_back(level)
        if level.is_leaving:
            owner.emptied(level)

    @property
    def is_over(self) -> bool:
        """Return whether the request does not wait any more."""
        return self._future is None or self._future.done()

    @property
    def may_start(self) -> bool:
        """Return whether the user may have another seat."""
        return self.is_over or self._owner.shares.has_room(self._share)

    def grant(self) -> None:
        """Take the seat that the pool gives: the request goes on."""
        assert self._future is not None
        self._owner.shares.take(self._share)
        self._granted_s = self._owner.clock.monotonic()
        self._future.set_result(True)

    async def wait(self) -> bool:
        """Wait in the queue. Returns False if no seat became free in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._future = future
        expiry = loop.call_later(self._owner.wait_s, self._expire)
        flow = self.flow
        flow.waiting += 1
        try:
            is_granted = await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                # The client left in the moment in which the seat became free.
                flow.executing += 1
                self.leave(self._share)
            else:
                flow.reject("time-out")
            raise
        finally:
            expiry.cancel()
            flow.waiting -= 1
            flow.level.queues.discard(self)
        if not is_granted:
            flow.reject("time-out")
        return is_granted

    def _expire(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(False)


class FlowControl:
    """Priority levels and flow schemas at work. `wait_s`: how long a request waits at most."""

    def __init__(
        self, cache: WatchCache[Stored], clock: Clock, seats: int = SEATS, wait_s: float = WAIT_S
    ) -> None:
        self.clock = clock
        self.wait_s = wait_s
        self.pool = SeatPool()
        self.shares = Budget(total=sys.maxsize, per_user=max(seats // _PARTS, 1))
        self._cache = cache
        self._seats = seats
        self._schemas = TypedReader(cache, FLOW_SCHEMA, FlowSchema)
        self._levels = TypedReader(cache, PRIORITY_LEVEL_CONFIGURATION, PriorityLevelConfiguration)
        self._flows: dict[tuple[str, str], Flow] = {}
        self._not_before_s = 0.0
        self._classifier: Classifier[Flow]
        self._configure()
        # The cache is loaded later.
        self._is_stale = True

    def changed(self, changes: list[Change]) -> None:
        """Listen to the store: note changes of the configuration."""
        if any(change.key.startswith(CONFIGURATION_TABLES) for change in changes):
            self._is_stale = True

    def flow_of(self, user: User, verb: str, target: Target) -> Flow:
        """Return the flow schema of a request, with its level. Hot path."""
        if self._is_stale and self.clock.monotonic() >= self._not_before_s:
            self._configure()
        return self._classifier.classify(user, verb, target)

    def seat(self, flow: Flow, share: str) -> Seat | None:
        """Return a free seat; None if the request has to wait. Hot path.

        `share` is the key that the user's requests count for, "" for exempt users.
        """
        if share and not self.shares.take(share):
            return None
        if not self.pool.take(flow.level):
            self.shares.give_back(share)
            return None
        flow.dispatched += 1
        flow.executing += 1
        return flow.seat

    def pass_through(self, flow: Flow, share: str) -> bool:
        """Count a request that is answered in one step, so that it needs its seat for no time.

        Returns False, and counts nothing, if it has to wait. Hot path.
        """
        if not self.pool.has_seat(flow.level) or not self.shares.has_room(share):
            return False
        flow.dispatched += 1
        return True

    async def wait(self, flow: Flow, user: User, target: Target, share: str) -> Seat | None:
        """Wait for a seat. Returns None if the request is refused, at once or after a while."""
        level = flow.level
        queuing = level.configuration.queuing
        if queuing is None:
            flow.reject("concurrency-limit")
            return None
        number = flow_hash(flow.schema.name, distinguisher_of(flow.schema, user, target))
        hand = hand_of(number, queuing.queues, queuing.hand_size)
        seat = Seat(self, flow, share)
        if not self.pool.enqueue(level, seat, hand, queuing.queue_length_limit):
            flow.reject("queue-full")
            return None
        if not await seat.wait():
            return None
        flow.dispatched += 1
        flow.executing += 1
        return seat

    def emptied(self, level: Level) -> None:
        """Remove a level whose object is gone, if that was its last request."""
        self._is_stale = self._is_stale or level.is_idle

    def flows(self) -> Iterator[Flow]:
        """Yield the flow schemas in use, and those that still have requests."""
        self.refresh()
        yield from self._flows.values()

    def has_level(self, name: str) -> bool:
        """Return whether there is a usable priority level of that name."""
        level = self.pool.levels.get(name)
        return level is not None and not level.is_leaving

    def refresh(self) -> None:
        """Read the configuration, if it changed."""
        if self._is_stale:
            self._configure()

    def _configure(self) -> None:
        configuration = digest(
            self._readable(PRIORITY_LEVEL_CONFIGURATION, self._levels),
            self._readable(FLOW_SCHEMA, self._schemas),
        )
        self.pool.configure(configuration.levels, self._seats)
        self._classifier = Classifier(self._bound(configuration))
        self._is_stale = False
        count = len(configuration.schemas)
        if count > _READ_AT_ONCE:
            self._not_before_s = self.clock.monotonic() + count * _PAUSE_PER_SCHEMA_S

    def _bound(self, configuration: Configuration) -> list[tuple[SchemaConfiguration, Flow]]:
        """Return the schemas with their flows, which are kept over changes."""
        bound = []
        busy = {key: flow for key, flow in self._flows.items() if flow.executing or flow.waiting}
        flows: dict[tuple[str, str], Flow] = {}
        for schema in configuration.schemas:
            key = (schema.level, schema.name)
            flow = self._flows.get(key) or Flow(self, self.pool.levels[schema.level])
            flow.level = self.pool.levels[schema.level]
            flow.configure(schema, configuration.levels[schema.level].uid)
            flows[key] = flow
            bound.append((schema, flow))
        self._flows = {**busy, **flows}
        return bound

    def _readable(self, kind: Kind, reader: TypedReader[T]) -> Iterable[T]:
        """Yield the objects of a kind, without those that do not have its shape."""
        for item in self._cache.scan(kind.prefix("")):
            try:
                typed = reader.get(item.name)
            except msgspec.ValidationError as error:
                log.warning("ignored", kind=kind.name, name=item.name, error=error)
                continue
            if typed is not None:
                yield typed
