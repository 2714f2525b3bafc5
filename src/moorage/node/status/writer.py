"""Pod status writer: patches changed statuses into the API, one write at a time for each pod.

Urgent changes (phase, readiness) are written at once; others are delayed, because a starting pod
passes through several states before the next one is worth a write. A newer status replaces a
pending one. Source: kubelet status manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from moorage.api.clock import Clock
from moorage.api.conditions import is_ready
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.pods import Pod, PodStatus
from moorage.client import Client, PatchType
from moorage.client.backoff import Backoff
from moorage.client.resources import PODS
from moorage.client.rest import UnreachableError
from moorage.node.status.patch import status_patch

log = Log(__name__)

# Longer than a pod usually takes from its sandbox to its start, which is an urgent change.
_CALM_S = 0.25

Written = Callable[[Pod], None]
"""Called with the pod as the API returned it. Must not block."""


@dataclass(slots=True)
class _Desk:
    """Write state of one pod: the API's status, and the status to report."""

    pod: Pod
    stored: PodStatus
    wanted: PodStatus | None = None
    is_urgent: bool = False
    is_gone: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class StatusWriter:
    """Writes statuses. `submit` does not block; `write` does the work, in one task per pod."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._desks: dict[str, _Desk] = {}

    def submit(self, pod: Pod, status: PodStatus) -> None:
        """Submit a status for writing. `pod` is the newest known object."""
        desk = self._desk(pod)
        before = desk.wanted or desk.stored
        if before == status:
            return
        desk.wanted = status
        desk.is_urgent = desk.is_urgent or is_urgent(before, status)
        desk.settled.clear()
        desk.changed.set()

    def seen(self, pod: Pod) -> None:
        """Store the newest object from the watch.

        A submitted status that differs from it is written again.
        """
        desk = self._desks.get(pod.metadata.uid)
        if desk is None or _version(pod) < _version(desk.pod):
            return
        desk.pod = pod
        desk.stored = pod.status
        if desk.wanted is not None:
            desk.changed.set()

    async def wait_written(self, uid: str) -> bool:
        """Block until the submitted status is stored or the pod is gone.

        Returns whether it is stored.
        """
        desk = self._desks.get(uid)
        if desk is None:
            return True
        await desk.settled.wait()
        return not desk.is_gone

    def forget(self, uid: str) -> None:
        self._desks.pop(uid, None)

    async def write(self, pod: Pod) -> None:
        """Write this pod's statuses until cancelled or the pod is gone from the API."""
        desk = self._desk(pod)
        backoff = Backoff(first_s=0.2, limit_s=10.0)
        while not desk.is_gone:
            await desk.changed.wait()
            desk.changed.clear()
            if not desk.is_urgent:
                await self._calm(desk)
            try:
                await self._write_once(desk)
                backoff.reset()
            except ConflictError as error:
                # The uid differs: the pod is gone, and another one has its name.
                log.debug("status conflict", pod=desk.pod.metadata.name, error=error)
                self._lost(desk)
            except NotFoundError:
                self._lost(desk)
            except (StatusError, UnreachableError) as error:
                pause_s = backoff.next_s()
                log.warning(
                    "status not written",
                    pod=f"{desk.pod.metadata.namespace}/{desk.pod.metadata.name}",
                    error=error,
                    retry_s=round(pause_s, 1),
                )
                # No further delay before the retry.
                desk.is_urgent = True
                desk.changed.set()
                await self._clock.sleep(pause_s)

    async def _calm(self, desk: _Desk) -> None:
        """Block for `_CALM_S` seconds, or until a change is urgent, to combine writes."""
        sleeper = asyncio.ensure_future(self._clock.sleep(_CALM_S))
        try:
            while not sleeper.done() and not desk.is_urgent:
                waiter = asyncio.ensure_future(desk.changed.wait())
                try:
                    await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiter.cancel()
                desk.changed.clear()
        finally:
            sleeper.cancel()

    async def _write_once(self, desk: _Desk) -> None:
        wanted = desk.wanted
        desk.is_urgent = False
        meta = desk.pod.metadata
        patch = None if wanted is None else status_patch(meta.uid, desk.stored, wanted)
        if patch is not None:
            written = await self._client.patch(
                PODS,
                meta.name,
                patch,
                meta.namespace,
                kind=PatchType.STRATEGIC,
                subresource="status",
            )
            if _version(written) >= _version(desk.pod):
                desk.pod = written
                desk.stored = written.status
        if desk.wanted is wanted:
            desk.settled.set()

    def _desk(self, pod: Pod) -> _Desk:
        desk = self._desks.get(pod.metadata.uid)
        if desk is None:
            desk = self._desks[pod.metadata.uid] = _Desk(pod, pod.status)
            desk.settled.set()
        return desk

    @staticmethod
    def _lost(desk: _Desk) -> None:
        desk.is_gone = True
        desk.settled.set()


def is_urgent(before: PodStatus, after: PodStatus) -> bool:
    """Return whether the phase or the readiness has changed."""
    return before.phase != after.phase or is_ready(before.conditions) != is_ready(after.conditions)


def _version(pod: Pod) -> int:
    """Return the resource version as a number. Clients may compare versions since KEP-5504."""
    return int(pod.metadata.resource_version or 0)
