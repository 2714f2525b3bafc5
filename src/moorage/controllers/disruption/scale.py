"""Scale: how many pods the controllers of some pods want.

Deployments, ReplicaSets and StatefulSets are in the informers; any other controller is asked for
its `scale`. Source: kube-controller-manager `disruption`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from moorage.api.autoscaling import Scale
from moorage.api.errors import NotFoundError
from moorage.api.meta import OwnerReference
from moorage.controllers.informers import Informers
from moorage.controllers.objects import Pod
from moorage.controllers.ownership import controller_of
from moorage.wire.client.discovery import ServedResource, read_version
from moorage.wire.client.resources import (
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    PartialObject,
    Resource,
)
from moorage.wire.client.rest import Client

_API_VERSION = re.compile(r"([a-z0-9.-]+/)?[a-z0-9]+")
_DEFAULT_REPLICAS = 1
_GROUPS = {
    DEPLOYMENTS.kind: ("apps", "extensions"),
    REPLICA_SETS.kind: ("apps", "extensions"),
    STATEFUL_SETS.kind: ("apps",),
}


class ScaleError(Exception):
    """The expected number of pods is unknown; the text says why."""


@dataclass(frozen=True, slots=True)
class ExpectedScale:
    """How many pods the controllers want, and the names of the pods without a controller."""

    count: int
    unmanaged: tuple[str, ...] = ()


class ScaleFinder:
    """Finds the controllers of pods and how many pods each wants."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._deployments = informers.deployments
        self._replica_sets = informers.replica_sets
        self._stateful_sets = informers.stateful_sets

    async def expected(self, pods: Iterable[Pod]) -> ExpectedScale:
        """Return the sum over the controllers of the pods.

        Raises ScaleError for a controller that is not found or cannot be scaled, and StatusError
        and UnreachableError.
        """
        unmanaged: list[str] = []
        seen: set[str] = set()
        scales: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod.metadata)
            if owner is None:
                unmanaged.append(pod.metadata.name)
            elif owner.uid not in seen:
                seen.add(owner.uid)
                found = await self._scale(owner, pod.metadata.namespace)
                if found is None:
                    raise ScaleError(f'found no controllers for pod "{pod.metadata.name}"')
                scales[found[0]] = found[1]
        return ExpectedScale(sum(scales.values()), tuple(unmanaged))

    async def _scale(self, owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
        """Return UID and replicas of the controller at the top; None if it is gone."""
        group = owner.api_version.rpartition("/")[0]
        if group not in _GROUPS.get(owner.kind, ()):
            return await self._scale_subresource(owner, namespace)
        if owner.kind == STATEFUL_SETS.kind:
            stateful_set = self._stateful_sets.get(owner.name, namespace)
            if stateful_set is None or stateful_set.metadata.uid != owner.uid:
                return None
            return owner.uid, _replicas(stateful_set.spec.replicas)
        if owner.kind == REPLICA_SETS.kind:
            return self._replica_set(owner, namespace)
        return await self._scale_subresource(owner, namespace)

    def _replica_set(self, owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
        """Return the scale of a ReplicaSet, or of the Deployment that it is of."""
        replica_set = self._replica_sets.get(owner.name, namespace)
        if replica_set is None or replica_set.metadata.uid != owner.uid:
            return None
        above = controller_of(replica_set.metadata)
        if above is None or above.kind != DEPLOYMENTS.kind:
            return owner.uid, _replicas(replica_set.spec.replicas)
        deployment = self._deployments.get(above.name, namespace)
        if deployment is None or deployment.metadata.uid != above.uid:
            return None
        return above.uid, _replicas(deployment.spec.replicas)

    async def _scale_subresource(
        self, owner: OwnerReference, namespace: str
    ) -> tuple[str, int] | None:
        resource, has_scale = await self._resource_of(owner)
        if not has_scale:
            name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
            raise ScaleError(f"{name} does not implement the scale subresource")
        try:
            answer = await self._client.request(
                "GET", resource.path(namespace, quote(owner.name, safe=""), "scale")
            )
        except NotFoundError:
            return None
        scale = msgspec.json.decode(answer, type=Scale)
        return None if scale.metadata.uid != owner.uid else (owner.uid, scale.spec.replicas)

    async def _resource_of(self, owner: OwnerReference) -> tuple[Resource[PartialObject], bool]:
        """Return the resource of a controller's kind, and whether it has `scale`."""
        served: tuple[ServedResource, ...] = ()
        if _API_VERSION.fullmatch(owner.api_version):
            with contextlib.suppress(NotFoundError):
                served = await read_version(self._client, owner.api_version)
        for one in served:
            if one.resource.kind == owner.kind:
                return one.resource, "scale" in one.subresources
        raise ScaleError(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')


def _replicas(stated: int | None) -> int:
    return _DEFAULT_REPLICAS if stated is None else stated
