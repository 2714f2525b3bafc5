"""Pod status writer: patches changed statuses into the API, one write at a time for each pod.

Urgent changes (phase, readiness) are written at once; others are delayed, because a starting pod
passes through several states before the next one is worth a write. A newer status replaces a
pending one. Source: kubelet status manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.conditions import is_ready
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.pods import Pod, PodCondition, PodStatus
from moorage.node.pod_facts.sources import is_static
from moorage.node.status.conditions import OWNED, is_own
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import Client, PatchType, UnreachableError

log = Log(__name__)

# Longer than a pod usually takes from its sandbox to its start, which is an urgent change.
_DEBOUNCE_S = 0.25


@dataclass(slots=True)
class _Outbox:
    """Write state of one pod: the API's status, and the status to report.

    `pod` is the object that is written to; a static pod has none before its mirror is seen.
    """

    pod: Pod
    stored: PodStatus
    has_object: bool = True
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
        self._outboxes: dict[str, _Outbox] = {}

    def submit(self, pod: Pod, status: PodStatus) -> None:
        """Submit a status for writing. `pod` is the newest known object."""
        outbox = self._outbox(pod)
        before = outbox.wanted or outbox.stored
        if before == status:
            return
        outbox.wanted = status
        outbox.is_urgent = outbox.is_urgent or is_urgent(before, status)
        outbox.settled.clear()
        outbox.changed.set()

    def seen(self, pod: Pod) -> None:
        """Store the newest object from the watch.

        A submitted status that differs from it is written again.
        """
        outbox = self._outboxes.get(pod.metadata.uid)
        if outbox is None or _version(pod) < _version(outbox.pod):
            return
        outbox.pod = pod
        outbox.stored = pod.status
        if outbox.wanted is not None:
            outbox.changed.set()

    def mirror_seen(self, uid: str, mirror: Pod) -> None:
        """Store the newest mirror of a static pod: its status is written to it."""
        outbox = self._outboxes.get(uid)
        if outbox is None:
            return
        is_same = outbox.has_object and outbox.pod.metadata.uid == mirror.metadata.uid
        if is_same and _version(mirror) <= _version(outbox.pod):
            return
        outbox.pod, outbox.stored, outbox.has_object = mirror, mirror.status, True
        if outbox.wanted is not None:
            outbox.is_urgent = outbox.is_urgent or not is_same
            outbox.changed.set()

    async def wait_written(self, uid: str) -> bool:
        """Block until the submitted status is stored or the pod is gone.

        Returns whether it is stored.
        """
        outbox = self._outboxes.get(uid)
        if outbox is None:
            return True
        await outbox.settled.wait()
        return not outbox.is_gone

    def forget(self, uid: str) -> None:
        self._outboxes.pop(uid, None)

    async def write(self, pod: Pod) -> None:
        """Write this pod's statuses until cancelled or the pod is gone from the API."""
        outbox = self._outbox(pod)
        backoff = Backoff(first_s=0.2, limit_s=10.0)
        while not outbox.is_gone:
            await outbox.changed.wait()
            outbox.changed.clear()
            if not outbox.is_urgent:
                await self._debounce(outbox)
            try:
                await self._write_once(outbox)
                backoff.reset()
            except ConflictError as error:
                # The uid differs: the pod is gone, and another one has its name.
                log.debug("status conflict", pod=outbox.pod.metadata.name, error=error)
                self._lost(outbox)
            except NotFoundError:
                self._lost(outbox)
            except (StatusError, UnreachableError) as error:
                pause_s = backoff.next_s()
                log.warning(
                    "status not written",
                    pod=f"{outbox.pod.metadata.namespace}/{outbox.pod.metadata.name}",
                    error=error,
                    retry_s=round(pause_s, 1),
                )
                # No further delay before the retry.
                outbox.is_urgent = True
                outbox.changed.set()
                await self._clock.sleep(pause_s)

    async def _debounce(self, outbox: _Outbox) -> None:
        """Block for `_DEBOUNCE_S` seconds, or until a change is urgent, to combine writes."""
        sleeper = asyncio.ensure_future(self._clock.sleep(_DEBOUNCE_S))
        try:
            while not sleeper.done() and not outbox.is_urgent:
                waiter = asyncio.ensure_future(outbox.changed.wait())
                try:
                    await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiter.cancel()
                outbox.changed.clear()
        finally:
            sleeper.cancel()

    async def _write_once(self, outbox: _Outbox) -> None:
        wanted = outbox.wanted
        outbox.is_urgent = False
        if not outbox.has_object:
            return
        meta = outbox.pod.metadata
        patch = None if wanted is None else status_patch(meta.uid, outbox.stored, wanted)
        if patch is not None:
            written = await self._client.patch(
                PODS,
                meta.name,
                patch,
                meta.namespace,
                kind=PatchType.STRATEGIC,
                subresource="status",
            )
            if _version(written) >= _version(outbox.pod):
                outbox.pod = written
                outbox.stored = written.status
        if outbox.wanted is wanted:
            outbox.settled.set()

    def _outbox(self, pod: Pod) -> _Outbox:
        outbox = self._outboxes.get(pod.metadata.uid)
        if outbox is None:
            outbox = _Outbox(pod, pod.status, has_object=not is_static(pod))
            self._outboxes[pod.metadata.uid] = outbox
            outbox.settled.set()
        return outbox

    @staticmethod
    def _lost(outbox: _Outbox) -> None:
        if is_static(outbox.pod):
            # Another mirror is made.
            outbox.has_object = False
            return
        outbox.is_gone = True
        outbox.settled.set()


def is_urgent(before: PodStatus, after: PodStatus) -> bool:
    """Return whether the phase or the readiness has changed."""
    return before.phase != after.phase or is_ready(before.conditions) != is_ready(after.conditions)


def _version(pod: Pod) -> int:
    """Return the resource version as a number. Clients may compare versions since KEP-5504."""
    return int(pod.metadata.resource_version or 0)


# Status patch: the minimal change from the API's status to the one to report.
#
# Pure. A strategic merge patch: lists with merge keys are replaced by directive where the agent
# owns
# them, conditions are merged by type so that other controllers' conditions are kept, and the pod's
# uid prevents a write to a successor of the same name. Source: apimachinery strategic merge patch,
# core/v1 PodStatus (patchStrategy tags).

_MERGED_LISTS = frozenset({"podIPs", "hostIPs"})
_NOT_OURS = frozenset(
    {
        "nominatedNodeName",
        "resourceClaimStatuses",
        "extendedResourceClaimStatus",
        "nodeAllocatableResourceClaimStatuses",
        "resize",
    }
)


def status_patch(uid: str, before: PodStatus, after: PodStatus) -> dict[str, Any] | None:
    """Return the body for `pods/NAME/status`; None when nothing has changed."""
    old, new = _plain(before), _plain(after)
    changes: dict[str, Any] = {}
    for name in sorted((old.keys() | new.keys()) - _NOT_OURS - {"conditions"}):
        if old.get(name) != new.get(name):
            changes[name] = _replaced(name, old.get(name), new.get(name))
    conditions = _condition_changes(before.conditions, after.conditions)
    if conditions:
        changes["conditions"] = conditions
    if not changes:
        return None
    return {"metadata": {"uid": uid}, "status": changes}


def _plain(status: PodStatus) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(status)
    return plain


def _replaced(field: str, old: Any, new: Any) -> Any:
    if new is None:
        return None
    if field in _MERGED_LISTS and old is not None:
        return [*new, {"$patch": "replace"}]
    if isinstance(new, Mapping) and old is not None:
        return {**new, "$patch": "replace"}
    return new


def _condition_changes(
    before: Sequence[PodCondition], after: Sequence[PodCondition]
) -> list[dict[str, Any]]:
    """Return changed conditions that the agent owns, and deletions of removed ones."""
    old = {condition.type: condition for condition in before}
    new = {condition.type: condition for condition in after if is_own(condition)}
    changed = [
        _condition(old.get(condition.type), condition)
        for condition in new.values()
        if old.get(condition.type) != condition
    ]
    gone = [
        {"$patch": "delete", "type": type_} for type_ in old if type_ in OWNED and type_ not in new
    ]
    return [*changed, *gone]


def _condition(old: PodCondition | None, new: PodCondition) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(new)
    if old is not None:
        # A merge keeps fields that the patch omits, so removed fields are set to null.
        removed = msgspec.to_builtins(old).keys() - plain.keys() - {"lastProbeTime"}
        plain |= dict.fromkeys(removed)
    return plain
