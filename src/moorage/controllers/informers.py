"""Shared informers of all controllers: each collection is watched once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from moorage.api.claims import class_of_claim, pod_claims
from moorage.api.clock import Clock
from moorage.api.meta import Object
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.controllers.objects import (
    ATTRIBUTES_CLASSES,
    CLAIMS,
    ENDPOINT_SLICES,
    LEASES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Pod,
)
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLES,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINTS,
    HORIZONTAL_POD_AUTOSCALERS,
    IP_ADDRESSES,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    RUNTIME_CLASSES,
    SERVICE_CIDRS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    Resource,
)
from moorage.wire.client.rest import PAGE_SIZE, Client, meta_of
from moorage.wire.client.served import run_when_served

T = TypeVar("T", bound=Object)

_LEAN_PAGE = 50
"""Nodes of a page: each may have hundreds of labels, and memory stays as it was at most."""

OWNER = "owner"
"""Index: the uid of an owner."""
NODE = "node"
"""Index of pods: the name of the node they are bound to, `""` for none."""
NAMESPACE = "namespace"
CLAIM = "claim"
"""Index of pods and volumes: `namespace/name` of a claim that they use or are bound to."""
RUNTIME_CLASS = "runtime class"
"""Index of pods: their class; those without one are not in it."""
STORAGE_CLASS = "storage class"
"""Index of claims: the name of their class, `""` for none."""


def owner_uids(obj: Any) -> Iterable[str]:
    return [reference.uid for reference in meta_of(obj).owner_references]


def _namespace(obj: Any) -> Iterable[str]:
    return (meta_of(obj).namespace,)


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,)


def _runtime_class(pod: Pod) -> Iterable[str]:
    return (pod.spec.runtime_class_name,) if pod.spec.runtime_class_name else ()


def claim_keys(pod: Pod) -> Iterable[str]:
    """Return `namespace/name` of each claim that a pod uses."""
    meta = pod.metadata
    return [f"{meta.namespace}/{claim.name}" for claim in pod_claims(meta.name, pod.spec.volumes)]


def _claim_of_volume(volume: PersistentVolume) -> Iterable[str]:
    reference = volume.spec.claim_ref
    return () if reference is None else (f"{reference.namespace}/{reference.name}",)


def _class_of_claim(claim: PersistentVolumeClaim) -> Iterable[str]:
    return (class_of_claim(claim),)


class Informers:
    """The shared informers. Add handlers, then have `run` in a task group."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        kept: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        """`kept`: plural of each resource that is watched → what is kept of an object; or all.

        Indexes by node, namespace and claim are left out then.
        """
        self._client = client
        self._clock = clock
        self._kept = kept
        self._shared: list[Informer[Any]] = []
        self.pods = self._share(
            PODS,
            {
                NODE: _node,
                NAMESPACE: _namespace,
                CLAIM: claim_keys,
                RUNTIME_CLASS: _runtime_class,
            },
        )
        self.nodes = self._share(NODES)
        self.namespaces = self._share(NAMESPACES)
        self.replica_sets = self._share(REPLICA_SETS, {NAMESPACE: _namespace})
        self.replication_controllers = self._share(REPLICATION_CONTROLLERS, {NAMESPACE: _namespace})
        self.deployments = self._share(DEPLOYMENTS, {NAMESPACE: _namespace})
        self.stateful_sets = self._share(STATEFUL_SETS, {NAMESPACE: _namespace})
        self.daemon_sets = self._share(DAEMON_SETS, {NAMESPACE: _namespace})
        self.jobs = self._share(JOBS, {NAMESPACE: _namespace})
        self.cron_jobs = self._share(CRON_JOBS)
        self.disruption_budgets = self._share(POD_DISRUPTION_BUDGETS, {NAMESPACE: _namespace})
        self.horizontal_pod_autoscalers = self._share(HORIZONTAL_POD_AUTOSCALERS)
        self.resource_quotas = self._share(RESOURCE_QUOTAS, {NAMESPACE: _namespace})
        self.revisions = self._share(CONTROLLER_REVISIONS, {NAMESPACE: _namespace})
        self.claims = self._share(CLAIMS, {STORAGE_CLASS: _class_of_claim})
        self.volumes = self._share(PERSISTENT_VOLUMES, {CLAIM: _claim_of_volume})
        self.storage_classes = self._share(STORAGE_CLASSES)
        self.attributes_classes = self._share(ATTRIBUTES_CLASSES)
        self.runtime_classes = self._share(RUNTIME_CLASSES)
        self.services = self._share(SERVICES, {NAMESPACE: _namespace})
        self.endpoints = self._share(ENDPOINTS)
        self.endpoint_slices = self._share(ENDPOINT_SLICES)
        self.service_accounts = self._share(SERVICE_ACCOUNTS, {NAMESPACE: _namespace})
        self.leases = self._share(LEASES)
        self.cluster_roles = self._share(CLUSTER_ROLES)
        self.certificate_requests = self._share(CERTIFICATE_SIGNING_REQUESTS)
        self.service_cidrs = self._share(SERVICE_CIDRS)
        self.ip_addresses = self._share(IP_ADDRESSES)

    def make(
        self,
        resource: Resource[T],
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
    ) -> Informer[T]:
        """Create an informer of a whole collection, indexed by owner among others."""
        every = {OWNER: owner_uids, **(indexes or {})}
        if self._kept is not None:
            every = {name: of for name, of in every.items() if name in (OWNER, RUNTIME_CLASS)}
        keep = None if self._kept is None else self._kept.get(resource.plural)
        page_size = _LEAN_PAGE if resource is NODES and keep is not None else PAGE_SIZE
        return Informer(
            self._client,
            resource,
            indexes=every,
            keep=keep,
            page_size=page_size,
            clock=self._clock,
        )

    def _share(
        self,
        resource: Resource[T],
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
    ) -> Informer[T]:
        self._shared.append(self.make(resource, indexes))
        return self._shared[-1]

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(self._shared)

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self:
                if self._kept is None or informer.resource.plural in self._kept:
                    tasks.create_task(self._run(informer))

    async def _run(self, informer: Informer[Any]) -> None:
        """Run an informer. Kinds that not all versions serve, from 1.30 on, are waited for."""
        if informer in (self.attributes_classes, self.service_cidrs, self.ip_addresses):
            await run_when_served(self._client, informer.resource, self._clock, informer.run)
        else:
            await informer.run()


async def wait_synced(*informers: Informer[Any]) -> None:
    """Block until every informer has listed its collection once."""
    for informer in informers:
        await informer.wait_synced()
