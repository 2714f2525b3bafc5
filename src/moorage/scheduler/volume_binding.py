"""Volume binding: writes what a placed pod's claims need, and waits until all are bound.

Volumes are given to claims, and claims get the node where their volume is to be made; the volume
controller and the provisioners do the rest. The pod is bound to its node only then, so that its
node never sees a claim without a volume. Source: kube-scheduler `BindPodVolumes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moorage.api.claims import binding_patch, is_claim_bound, is_reachable
from moorage.api.claims.annotations import SELECTED_NODE
from moorage.api.clock import Clock, sleep_unless_set
from moorage.api.errors import StatusError
from moorage.api.persistent_volumes import PersistentVolume
from moorage.scheduler.storage_state import StorageState
from moorage.scheduler.volume_checks import VolumePlan
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from moorage.wire.client.rest import Client, UnreachableError

_PLUGIN = 'running PreBind plugin "VolumeBinding"'


class VolumeBindingError(Exception):
    """The claims of a pod were not bound; the pod is to be scheduled again."""


@dataclass(slots=True)
class _Written:
    """The revisions that our own writes made, by volume name and by claim key."""

    volumes: dict[str, str] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)


class VolumeBinder:
    """Binds the volumes of placed pods. `notify` wakes those that wait for a volume or a claim.

    `storage` is what the scheduler knows of volumes and claims.
    """

    def __init__(self, client: Client, clock: Clock, *, longest_wait_s: float) -> None:
        self._client = client
        self.storage = StorageState()
        self._clock = clock
        self._longest_wait_s = longest_wait_s
        self.waiting: dict[str, set[asyncio.Event]] = {}
        """The events of bindings, by the key of the volume or claim that they wait for."""

    def notify(self, key: str) -> None:
        """Wake the pods that wait for this volume or claim, which has changed."""
        for changed in self.waiting.get(key, ()):
            changed.set()

    async def bind(
        self,
        plan: VolumePlan,
        node_name: str,
        node_labels: Callable[[], Mapping[str, str] | None],
        is_wanted: Callable[[], bool],
    ) -> bool:
        """Carry out a plan that the storage state has reserved, and release it in the end.

        Returns whether the claims are bound; False if the pod is no longer wanted. Raises
        VolumeBindingError when a write is refused, a binding comes to nothing, or time is over.
        """
        changed = asyncio.Event()
        keys = [*(name for name, _ in plan.reserved), *(key for _, key in plan.reserved)]
        keys += plan.selected
        for key in keys:
            self.waiting.setdefault(key, set()).add(changed)
        try:
            try:
                written = await self._write(plan, node_name)
            except (StatusError, UnreachableError) as error:
                raise VolumeBindingError(f"{_PLUGIN}: {error}") from error
            deadline = self._clock.monotonic() + self._longest_wait_s
            while is_wanted():
                changed.clear()
                if self._are_bound(plan, written, node_name, node_labels()):
                    return True
                left_s = deadline - self._clock.monotonic()
                if left_s <= 0:
                    raise VolumeBindingError(
                        f"{_PLUGIN}: binding volumes: context deadline exceeded"
                    )
                await sleep_unless_set(self._clock, left_s, changed)
            return False
        finally:
            self.storage.release(plan.reserved, plan.selected)
            for key in keys:
                waiting = self.waiting.get(key, set())
                waiting.discard(changed)
                if not waiting:
                    self.waiting.pop(key, None)

    async def _write(self, plan: VolumePlan, node_name: str) -> _Written:
        written = _Written()
        for volume, claim in plan.bindings:
            patch = binding_patch(volume, claim)
            if patch is not None:
                name = volume.metadata.name
                stored = await self._client.patch(PERSISTENT_VOLUMES, name, patch)
                written.volumes[name] = stored.metadata.resource_version
        for key, claim in zip(plan.selected, plan.provisions, strict=True):
            meta = claim.metadata
            if meta.annotations.get(SELECTED_NODE) == node_name:
                continue
            # Not of one revision: the volume controller writes the claim's phase meanwhile.
            body = {"metadata": {"uid": meta.uid, "annotations": {SELECTED_NODE: node_name}}}
            made = await self._client.patch(
                PERSISTENT_VOLUME_CLAIMS, meta.name, body, meta.namespace
            )
            written.claims[key] = made.metadata.resource_version
        return written

    def _are_bound(
        self,
        plan: VolumePlan,
        written: _Written,
        node_name: str,
        node_labels: Mapping[str, str] | None,
    ) -> bool:
        """Return whether all claims are bound. Raises VolumeBindingError if one will not be."""
        if node_labels is None:
            raise _failed(f'failed to get node "{node_name}"')
        return all([
            *(
                self._is_given(name, key, written, node_name, node_labels)
                for name, key in plan.reserved
            ),
            *(self._is_made(key, written, node_name, node_labels) for key in plan.selected),
        ])  # fmt: skip

    def _is_given(
        self,
        name: str,
        key: str,
        written: _Written,
        node_name: str,
        node_labels: Mapping[str, str],
    ) -> bool:
        volume, claim = self.storage.volume(name), self.storage.claim(key)
        if volume is None:
            raise _failed(f'failed to check binding: persistentvolume "{name}" not found')
        if claim is None:
            raise _failed(f'failed to check binding: persistentvolumeclaim "{key}" not found')
        if _is_older(volume.metadata.resource_version, written.volumes.get(name, "")):
            return False
        _require_reach(volume, node_name, node_labels)
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            raise _failed(f'ClaimRef got reset for pv "{name}"')
        return is_claim_bound(claim)

    def _is_made(
        self, key: str, written: _Written, node_name: str, node_labels: Mapping[str, str]
    ) -> bool:
        claim = self.storage.claim(key)
        if claim is None:
            raise _failed(
                f'failed to check provisioning pvc: persistentvolumeclaim "{key}" not found'
            )
        if _is_older(claim.metadata.resource_version, written.claims.get(key, "")):
            return False
        if claim.metadata.annotations.get(SELECTED_NODE) != node_name:
            raise _failed(f'provisioning failed for PVC "{claim.metadata.name}"')
        if claim.spec.volume_name:
            volume = self.storage.volume(claim.spec.volume_name)
            if volume is None:
                return False  # Our copy does not have it yet.
            _require_reach(volume, node_name, node_labels)
        return is_claim_bound(claim)


def _require_reach(
    volume: PersistentVolume, node_name: str, node_labels: Mapping[str, str]
) -> None:
    if not is_reachable(volume, node_labels):
        raise _failed(
            f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node_name}": no '
            "matching NodeSelectorTerms"
        )


def _failed(why: str) -> VolumeBindingError:
    return VolumeBindingError(f"{_PLUGIN}: binding volumes: {why}")


def _is_older(seen: str, written: str) -> bool:
    """Return whether what we see was there before our own write."""
    return seen.isdigit() and written.isdigit() and int(seen) < int(written)
