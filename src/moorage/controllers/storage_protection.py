"""Protection of storage in use: adds finalizers, and removes them once nothing uses the object.

Admission adds them to new objects; those that lack one are older. Source: controllers
`persistentvolumeclaim-protection`, `persistentvolume-protection` and
`volumeattributesclass-protection` of kube-controller-manager, KEP-3751.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from moorage.api.claims.binding import (
    ATTRIBUTES_CLASS_PROTECTION,
    CLAIM_PROTECTION,
    VOLUME_PROTECTION,
)
from moorage.api.claims.pod_claims import foreign_claim, pod_claims
from moorage.api.clock import Clock
from moorage.api.meta import ObjectMeta
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.controllers.informers import CLAIM, Informers, claim_keys
from moorage.controllers.loop import Keys, Loop, Watch
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.requests import add_finalizer, remove_finalizer
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.rest import Client

_BOUND = "Bound"


def claim_protection(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that keeps a claim until no pod on a node uses it.

    A pod that is not scheduled does not count: node agents start no pod whose claim is being
    deleted.
    """
    claims = informers.claims

    async def is_used(key: str, claim: PersistentVolumeClaim) -> bool:
        if any(uses(pod, claim) for pod in informers.pods.by_index(CLAIM, key)):
            return True
        # A pod may have come that the copy does not have yet.
        listed = await client.list(PODS, claim.metadata.namespace)
        return any(uses(pod, claim) for pod in listed.items)

    def released(before: Pod | None, after: Pod | None) -> Iterable[str]:
        """Yield the claims that wait for a pod; another pod of its name may have followed it."""
        for pod in (before, after):
            for key in claim_keys(pod) if pod is not None else ():
                claim = claims.get_key(key)
                if claim is not None and _is_leaving(claim.metadata, CLAIM_PROTECTION):
                    yield key

    return _protection(
        "claim protection", client, claims, CLAIM_PROTECTION, is_used, clock,
        (informers.pods, released),
    )  # fmt: skip


def volume_protection(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that keeps a volume until it is bound to no claim."""

    async def is_used(name: str, volume: PersistentVolume) -> bool:
        del name
        return volume.status.phase == _BOUND

    return _protection(
        "volume protection", client, informers.volumes, VOLUME_PROTECTION, is_used, clock
    )


def attributes_class_protection(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that keeps a VolumeAttributesClass until no claim and no volume names it."""
    claims, volumes = informers.claims, informers.volumes

    async def is_used(name: str, attributes_class: Any) -> bool:
        del attributes_class
        return any(name in classes_of_claim(claim) for claim in claims) or any(
            name in classes_of_volume(volume) for volume in volumes
        )

    return _protection(
        "attributes class protection", client, informers.attributes_classes,
        ATTRIBUTES_CLASS_PROTECTION, is_used, clock,
        (claims, _dropped(classes_of_claim)),
        (volumes, _dropped(classes_of_volume)),
    )  # fmt: skip


def _protection(
    name: str,
    client: Client,
    protected: Informer[Any],
    finalizer: str,
    is_used: Callable[[str, Any], Awaitable[bool]],
    clock: Clock,
    *users: Watch[str],
) -> Loop[str]:
    """Return the loop of one kind; `users` are the kinds whose changes may release an object."""

    def changed(before: Any, after: Any) -> Iterable[str]:
        del before
        if after is not None:
            meta = after.metadata
            if _is_leaving(meta, finalizer) or _is_unprotected(meta, finalizer):
                yield object_key(meta)

    async def reconcile(key: str) -> None:
        obj = protected.get_key(key)
        if obj is None:
            return
        if _is_unprotected(obj.metadata, finalizer):
            await add_finalizer(client, protected.resource, obj.metadata, finalizer)
        elif _is_leaving(obj.metadata, finalizer) and not await is_used(key, obj):
            await remove_finalizer(client, protected.resource, obj.metadata, finalizer)

    return Loop(name, reconcile, ((protected, changed), *users), clock)


def _dropped(names_of: Callable[[Any], set[str]]) -> Keys[str]:
    return lambda before, after: names_of(before) - names_of(after)


def _is_leaving(meta: ObjectMeta, finalizer: str) -> bool:
    """Return whether an object waits for its finalizer, alone or among others, to be removed."""
    return meta.deletion_timestamp is not None and finalizer in meta.finalizers


def _is_unprotected(meta: ObjectMeta, finalizer: str) -> bool:
    """Return whether an object lacks its finalizer: it is older than the admission plugin."""
    return meta.deletion_timestamp is None and finalizer not in meta.finalizers


def uses(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Return whether a pod of the claim's namespace keeps the claim, even if the pod has ended."""
    if not pod.spec.node_name:
        return False
    meta = pod.metadata
    return any(
        # The claim of an ephemeral volume goes with its pod, not the other way round.
        not used.is_ephemeral or not (is_shut_down(pod) or foreign_claim(meta, claim))
        for used in pod_claims(meta.name, pod.spec.volumes)
        if used.name == claim.metadata.name
    )


def is_shut_down(pod: Pod) -> bool:
    """Return whether the node agent is done with a pod, or the pod was deleted by force."""
    meta = pod.metadata
    return meta.deletion_timestamp is not None and meta.deletion_grace_period_seconds == 0


def classes_of_claim(claim: PersistentVolumeClaim | None) -> set[str]:
    """Return the classes of attributes that a claim has, wants, or is being changed to."""
    if claim is None:
        return set()
    status = claim.status
    modified = status.modify_volume_status
    names = {
        claim.spec.volume_attributes_class_name,
        status.current_volume_attributes_class_name,
        modified.target_volume_attributes_class_name if modified is not None else None,
    }
    return {name for name in names if name}


def classes_of_volume(volume: PersistentVolume | None) -> set[str]:
    """Return the class of attributes of a volume, if it has one."""
    name = volume.spec.volume_attributes_class_name if volume is not None else None
    return {name} if name else set()
