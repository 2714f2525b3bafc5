"""Background compaction: expires old events and store history.

Source: kube-apiserver `--event-ttl` (1 hour), etcd compaction every 5 minutes. Continue tokens
are valid as long as the history they refer to.
"""

from __future__ import annotations

from datetime import timedelta

from moorage.api.clock import Clock, parse_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.apiserver.registry.deletion import DeleteOptions
from moorage.apiserver.registry.kinds.event import EVENT
from moorage.apiserver.registry.objects import Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.storage import Store, StoreBrokenError, WatchCache

EVENT_TTL = timedelta(hours=1)
COMPACTION_INTERVAL_S = 300.0
_EXPIRY_INTERVAL_S = 60.0
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))

log = Log(__name__)


async def keep_compacting(store: Store, clock: Clock) -> None:
    """Compact history older than one interval, periodically, until cancelled."""
    last = store.revision
    while True:
        await clock.sleep(COMPACTION_INTERVAL_S)
        try:
            await store.compact(last)
        except StoreBrokenError as error:
            log.error("compaction failed", revision=last, error=error)
        last = store.revision


async def keep_expiring_events(objects: Objects, cache: WatchCache[Stored], clock: Clock) -> None:
    """Delete events an hour after they were last seen, until cancelled."""
    while True:
        await clock.sleep(_EXPIRY_INTERVAL_S)
        await expire_events(objects, cache, clock)


async def expire_events(objects: Objects, cache: WatchCache[Stored], clock: Clock) -> None:
    """Delete events older than their TTL, in pages. Conflicts are left to the next pass."""
    oldest = clock.now() - EVENT_TTL
    for item in cache.scan(EVENT.prefix("")):
        event = item.obj
        seen = event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]
        if parse_time(seen) >= oldest:
            continue
        request = Request(user=_USER, is_own=True, user_agent="apiserver/upkeep")
        try:
            await objects.delete(
                request, EVENT, EVENT.storage, item.namespace, item.name, DeleteOptions()
            )
        except NotFoundError:
            continue
        except StatusError as error:
            log.warning("event not expired", event=item.key, error=error)
            return
