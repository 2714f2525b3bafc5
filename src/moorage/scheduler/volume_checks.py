"""Volumes of a pod: whether its claims can be used on a node, and what is bound for them there.

The claims of a pod are looked up once for a decision; each node is then judged by its labels. Pods
without claims cost nothing. Source: kube-scheduler plugins VolumeBinding, VolumeRestrictions and
VolumeZone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from moorage.api.claims import (
    PodClaim,
    best_match,
    class_of_claim,
    is_claim_bound,
    is_delayed,
    is_reachable,
    matches_topologies,
    pod_claims,
    zone_conflicts,
)
from moorage.api.claims.binding import requested
from moorage.api.claims.classes import NO_PROVISIONER, PROVISIONER, node_problem, only_hosts
from moorage.api.claims.pod_claims import foreign_claim
from moorage.api.labels import Labels
from moorage.api.nodes import HOSTNAME
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.api.pods import Pod
from moorage.scheduler.filters import VOLUME_BINDING, VOLUME_RESTRICTIONS, VOLUME_ZONE, Rejection
from moorage.scheduler.nodes import NodeInfo
from moorage.scheduler.storage_state import StorageState
from moorage.wire.client.informer import object_key

_EXCLUSIVE = "ReadWriteOncePod"
_LOST = "Lost"


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a pod's claims keep it from every node, and the filter that says so."""

    filter: str
    message: str


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What is to be bound before a pod can be: volumes to claims, and claims to a node."""

    bindings: tuple[tuple[PersistentVolume, PersistentVolumeClaim], ...] = ()
    provisions: tuple[PersistentVolumeClaim, ...] = ()

    @property
    def reserved(self) -> list[tuple[str, str]]:
        """Return (volume, claim) of each binding, by name and key."""
        return [
            (volume.metadata.name, object_key(claim.metadata)) for volume, claim in self.bindings
        ]

    @property
    def selected(self) -> list[str]:
        """Return the keys of the claims to provision."""
        return [object_key(claim.metadata) for claim in self.provisions]

    def __bool__(self) -> bool:
        return bool(self.bindings or self.provisions)


@dataclass(frozen=True, slots=True)
class VolumeCheck:
    """The claims of one pod, looked up.

    `volumes` are those of its bound claims, `unbound` the claims that are bound to a node with the
    pod, and `users` the nodes on which pods use each claim that a single pod may use.
    """

    storage: StorageState
    volumes: tuple[PersistentVolume, ...] = ()
    unbound: tuple[PersistentVolumeClaim, ...] = ()
    lacks_volume: bool = False
    users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _candidates: dict[str, _Candidates] = field(default_factory=dict)

    def rejection(self, node: NodeInfo) -> Rejection | None:
        """Return why the pod cannot use its volumes on a node; None if it can."""
        if self.users and (rejection := self._in_use(node)) is not None:
            return rejection
        reasons = tuple(self._reasons(node))
        if reasons:
            return Rejection(VOLUME_BINDING, reasons)
        if any(zone_conflicts(volume, node.labels) for volume in self.volumes):
            return _OTHER_ZONE
        return None

    def plan(self, node: NodeInfo) -> VolumePlan:
        """Return the volumes to bind for the pod on a node that was not rejected."""
        return self._plan(node) or VolumePlan()

    def _in_use(self, node: NodeInfo) -> Rejection | None:
        """The node's own pods are counted again: preemption tries it without some of them."""
        is_elsewhere = any(nodes - {node.name} for nodes in self.users.values())
        if is_elsewhere:
            return _IN_USE_ELSEWHERE
        return _IN_USE if any(node.claims.get(key) for key in self.users) else None

    def _reasons(self, node: NodeInfo) -> Iterator[str]:
        if not all(is_reachable(volume, node.labels) for volume in self.volumes):
            yield _OTHER_NODE
        if self.unbound and self._plan(node) is None:
            yield _NO_VOLUME
        if self.lacks_volume:
            yield _LOST_VOLUME

    def _plan(self, node: NodeInfo) -> VolumePlan | None:
        """Return the bindings of the unbound claims on a node; None if one is impossible there."""
        bindings: list[tuple[PersistentVolume, PersistentVolumeClaim]] = []
        provisions: list[PersistentVolumeClaim] = []
        chosen: set[str] = set()
        for claim in self.unbound:
            selected = self.storage.selected_node(claim)
            volume = None
            if not selected:
                candidates = self._candidates_of(claim).at(node.labels)
                volume = best_match(
                    claim, candidates, node_labels=node.labels, excluded=chosen, is_delayed=True
                )
            elif selected != node.name:
                return None
            if volume is not None:
                chosen.add(volume.metadata.name)
                bindings.append((volume, claim))
            elif self._can_provision(claim, node):
                provisions.append(claim)
            else:
                return None
        return VolumePlan(tuple(bindings), tuple(provisions))

    def _candidates_of(self, claim: PersistentVolumeClaim) -> _Candidates:
        key = object_key(claim.metadata)
        known = self._candidates.get(key)
        if known is None:
            volumes = self.storage.volumes_for(claim, class_of_claim(claim))
            known = self._candidates[key] = _Candidates.of(volumes)
        return known

    def _can_provision(self, claim: PersistentVolumeClaim, node: NodeInfo) -> bool:
        storage_class = self.storage.storage_class(class_of_claim(claim))
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            return False
        if storage_class.provisioner == PROVISIONER and node_problem(
            node.name, node.labels.get(HOSTNAME, "")
        ):
            return False
        return matches_topologies(storage_class.allowed_topologies, node.labels)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Volumes by the host that they are bound to; a node looks at its own and at the others'."""

    by_host: Mapping[str, list[PersistentVolume]]
    anywhere: list[PersistentVolume]

    @classmethod
    def of(cls, volumes: list[PersistentVolume]) -> _Candidates:
        by_host: dict[str, list[PersistentVolume]] = {}
        anywhere: list[PersistentVolume] = []
        for volume in volumes:
            hosts = only_hosts(volume)
            if hosts is None:
                anywhere.append(volume)
            for host in hosts or ():
                by_host.setdefault(host, []).append(volume)
        return cls(by_host, anywhere)

    def at(self, node_labels: Labels) -> list[PersistentVolume]:
        own = self.by_host.get(node_labels.get(HOSTNAME, ""))
        return self.anywhere if own is None else [*own, *self.anywhere]


def check_volumes(
    pod: Pod, storage: StorageState, nodes: Mapping[str, NodeInfo]
) -> VolumeCheck | Blocked | None:
    """Look up a pod's claims. Returns None for a pod without any.

    Hot path: nothing for a pod without volumes that have claims.
    """
    if not pod.spec.volumes:
        return None
    claims = pod_claims(pod.metadata.name, pod.spec.volumes)
    return _look_up(pod, claims, storage, nodes) if claims else None


def _look_up(
    pod: Pod, claims: tuple[PodClaim, ...], storage: StorageState, nodes: Mapping[str, NodeInfo]
) -> VolumeCheck | Blocked:
    bound: list[PersistentVolume] = []
    unbound: dict[str, PersistentVolumeClaim] = {}
    lacks_volume, is_waiting, lost = False, False, ""
    exclusive: list[str] = []
    found: list[tuple[PodClaim, PersistentVolumeClaim]] = []
    for pod_claim in sorted(claims, key=lambda entry: entry.is_ephemeral):
        key = f"{pod.metadata.namespace}/{pod_claim.name}"
        claim = storage.claim(key)
        if problem := _claim_problem(pod, pod_claim, claim):
            return Blocked(VOLUME_BINDING, problem)
        assert claim is not None
        found.append((pod_claim, claim))
        if _EXCLUSIVE in claim.spec.access_modes and not pod_claim.is_ephemeral:
            exclusive.append(key)
    for pod_claim, claim in found:
        if not is_claim_bound(claim):
            storage_class = storage.storage_class(class_of_claim(claim))
            if is_delayed(storage_class) and not claim.spec.volume_name:
                unbound[claim.metadata.name] = claim
            else:
                is_waiting = True
            continue
        volume = storage.volume(claim.spec.volume_name)
        if volume is not None:
            bound.append(volume)
        elif pod_claim.is_ephemeral:
            lacks_volume = True
        else:
            lost = lost or claim.spec.volume_name
    if is_waiting:
        return Blocked(VOLUME_BINDING, "pod has unbound immediate PersistentVolumeClaims")
    if lost:
        return Blocked(VOLUME_ZONE, f'persistentvolume "{lost}" not found')
    return VolumeCheck(
        storage,
        tuple(bound),
        # The smallest claim first, so that it gets the smallest volume.
        tuple(sorted(unbound.values(), key=requested)),
        lacks_volume,
        _users(exclusive, nodes),
    )


def _claim_problem(pod: Pod, pod_claim: PodClaim, claim: PersistentVolumeClaim | None) -> str:
    """Return why a claim cannot be used, "" if it can."""
    name = pod_claim.name
    if claim is None and pod_claim.is_ephemeral:
        return (
            f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        )
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if claim.status.phase == _LOST:
        volume = claim.spec.volume_name
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return foreign_claim(pod.metadata, claim) if pod_claim.is_ephemeral else ""


def _users(keys: list[str], nodes: Mapping[str, NodeInfo]) -> dict[str, frozenset[str]]:
    """Return the nodes whose pods use each claim; claims that no pod uses are left out."""
    used = {
        key: frozenset(name for name, node in nodes.items() if node.claims.get(key)) for key in keys
    }
    return {key: names for key, names in used.items() if names}


_OTHER_NODE = "node(s) didn't match PersistentVolume's node affinity"
_NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
_LOST_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_USED = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)
_IN_USE = Rejection(VOLUME_RESTRICTIONS, (_USED,), is_resolvable=True)
_IN_USE_ELSEWHERE = Rejection(VOLUME_RESTRICTIONS, (_USED,))
_OTHER_ZONE = Rejection(VOLUME_ZONE, ("node(s) had no available volume zone",))
