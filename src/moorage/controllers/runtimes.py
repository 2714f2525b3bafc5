"""Controllers of runtimes: those of our own group, which no Kubernetes has.

They wait until the definitions of their kinds are installed, which they do themselves, so that the
same runs in `moor up`, beside kube-controller-manager, and on any other API server.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from sys import intern
from typing import Any, Protocol, cast

from msgspec.structs import replace

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import ObjectMeta, OwnerReference, Raw
from moorage.api.pods import PodCondition
from moorage.api.quantity import canonical, to_texts
from moorage.api.runtime_group import GROUP, RuntimeClassQuota, RuntimeClassQuotaStatus
from moorage.apiserver.quota import class_usage
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import After, Loop, Queued
from moorage.controllers.objects import (
    ContainerStatus,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    RuntimeHandler,
)
from moorage.controllers.options import ControllerOptions
from moorage.controllers.overhead_drift import OverheadDriftController, OverheadMetrics
from moorage.controllers.pods import is_ended
from moorage.controllers.requests import status_patch
from moorage.controllers.runtimeclasses import RuntimeClassController, profile_informer
from moorage.controllers.runtimegates import RuntimeGateController
from moorage.controllers.runtimeinstallations import RuntimeInstallationController
from moorage.controllers.runtimepolicies import FloorLabelController
from moorage.controllers.runtimerollouts import RuntimeRolloutController
from moorage.runtimes.custom_resources import install_definitions, wait_installed
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.informer import Informer, latest, object_key
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import PODS, RUNTIME_CLASS_QUOTAS
from moorage.wire.client.rest import Client, UnreachableError

# RuntimeClassQuota controller: writes limits and use into the status of class quotas.
#
# Admission counts up what new pods use. This counts again when a quota changes, when pods end or
# go, some time after admission counted, and every five minutes.

_WORKERS = 5
_RESYNC_S = 300.0
_RECOUNT_S = 30.0
"""After this time, what admission counted for pods that were refused later is corrected."""

_STORED_S = 0.2
"""How long the API server takes at most from the charge of a pod to its commit."""

_GATHER_S = 0.5
"""Pods that go within this time are counted once."""


class RuntimeClassQuotaController:
    """Watches RuntimeClassQuotas, and pods that end or go."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._pods = informers.pods
        self._clock = clock
        self._quotas: Informer[RuntimeClassQuota] = Informer(
            client,
            RUNTIME_CLASS_QUOTAS,
            clock=clock,
            indexes={NAMESPACE: lambda quota: (quota.metadata.namespace,)},
        )
        self.run = Loop(
            "runtime class quotas",
            self._reconcile,
            [(self._quotas, self._quota_changed), (self._pods, self._pod_changed)],
            clock,
            owned=[self._quotas],
            resync=(_RESYNC_S, self._all),
            workers=_WORKERS,
        ).run

    def _all(self) -> Iterator[str]:
        return (object_key(quota.metadata) for quota in self._quotas)

    def _quota_changed(
        self, before: RuntimeClassQuota | None, after: RuntimeClassQuota | None
    ) -> Iterator[Queued[str]]:
        if after is None:
            return
        key = object_key(after.metadata)
        if before is None or before.spec != after.spec or _hard(after) != after.status.hard:
            yield key
        elif before.status.used != after.status.used:
            yield After(key, _RECOUNT_S)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[Queued[str]]:
        was_ended = before is not None and is_ended(before)
        if after is None or (is_ended(after) and not was_ended):
            pod = latest(before, after)
            for quota in self._quotas.by_index(NAMESPACE, pod.metadata.namespace):
                yield After(object_key(quota.metadata), _GATHER_S)

    async def _reconcile(self, key: str) -> float | None:
        quota = self._quotas.get_key(key)
        if quota is None:
            return None
        if quota.status.used:
            # Pods that admission has charged already are stored by then: the list has them.
            await self._clock.sleep(_STORED_S)
        pods = await self._client.list(PODS, quota.metadata.namespace)
        used = class_usage(quota.spec, pods.items, self._clock.now())
        status = RuntimeClassQuotaStatus(hard=_hard(quota), used={**to_texts(used)})
        if status == quota.status:
            return None
        patch = status_patch(quota.metadata, quota.status, status)
        meta = quota.metadata
        try:
            await self._client.patch(
                RUNTIME_CLASS_QUOTAS, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError:
            return None  # It is gone.
        except ConflictError:
            # Admission charged a pod meanwhile; its change of the quota may have been seen already.
            return _GATHER_S
        return None


def _hard(quota: RuntimeClassQuota) -> dict[str, int | str]:
    return {name: canonical(text) for name, text in quota.spec.hard.items()}


# Copies that the controllers of runtimes keep of a cluster's objects, where they run alone.
#
# Beside another controller manager nothing else reads these copies, so that of 100,000 pods a few
# hundred bytes each stay: class, node, owner, phase, readiness. Templates keep their class alone.

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_SHARED = 1000
_CONDITIONS = ("Ready", "PodScheduled")


def _kept_pod(pod: Pod) -> Pod:
    """Return the fields of a pod that are read: without a class its identity and phase."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    phase = intern(status.phase)
    if not spec.runtime_class_name:
        metadata = ObjectMeta(
            name=meta.name,
            namespace=intern(meta.namespace),
            uid=meta.uid,
            resource_version=meta.resource_version,
        )
        return Pod(metadata=metadata, status=PodStatus(phase=phase))
    restarts = sum(
        one.restart_count for one in (*status.init_container_statuses, *status.container_statuses)
    )
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=intern(meta.namespace),
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            # A rollout selects pods that no workload owns by their labels.
            labels={} if meta.owner_references else meta.labels,
            owner_references=tuple(map(_kept_owner, meta.owner_references)),
        ),
        spec=PodSpec(
            node_name=intern(spec.node_name), runtime_class_name=intern(spec.runtime_class_name)
        ),
        status=PodStatus(
            phase=phase,
            conditions=tuple(
                PodCondition(
                    type=intern(one.type),
                    status=intern(one.status),
                    last_transition_time=one.last_transition_time,
                )
                for one in status.conditions
                if one.type in _CONDITIONS
            ),
            container_statuses=(ContainerStatus(restart_count=restarts),) if restarts else (),
        ),
    )


def _kept_owner(owner: OwnerReference) -> OwnerReference:
    return OwnerReference(
        kind=intern(owner.kind),
        name=intern(owner.name),
        uid=intern(owner.uid),
        controller=owner.controller,
    )


class _SharedLabels:
    """Labels of handlers and features, hundreds a node, kept once for all nodes with the same."""

    def __init__(self) -> None:
        self._kept: dict[frozenset[tuple[str, str]], dict[str, str]] = {}

    def share(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        """Return the same labels, of which those of our group are shared."""
        ours = frozenset(label for label in labels.items() if GROUP in label[0])
        if ours not in self._kept and len(self._kept) >= _MOST_SHARED:
            self._kept.clear()
        shared = self._kept.setdefault(ours, dict(ours))
        others = {key: value for key, value in labels.items() if GROUP not in key}
        return ChainMap(others, shared)


def _node_keeper() -> Callable[[Node], Node]:
    labels = _SharedLabels()

    def kept(node: Node) -> Node:
        meta = node.metadata
        metadata = ObjectMeta(
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            labels=cast(dict[str, str], labels.share(meta.labels)),
        )
        conditions = tuple(one for one in node.status.conditions if one.type == "Ready")
        handlers = tuple(
            RuntimeHandler(name=intern(handler.name)) for handler in node.status.runtime_handlers
        )
        status = NodeStatus(conditions=conditions, runtime_handlers=handlers)
        return Node(metadata=metadata, status=status)

    return kept


def _kept_workload(workload: Any) -> Any:
    spec = replace(workload.spec, template=_kept_template(workload.spec.template))
    return replace(workload, metadata=_kept_metadata(workload.metadata), spec=spec)


def _kept_cron_job(cron_job: Any) -> Any:
    job = cron_job.spec.job_template
    template = _kept_template(job.spec.get("template") or {})
    job_template = replace(job, spec={"template": template})
    spec = replace(cron_job.spec, job_template=job_template)
    return replace(cron_job, metadata=_kept_metadata(cron_job.metadata), spec=spec)


def _kept_template(template: Raw) -> Raw:
    name = (template.get("spec") or {}).get("runtimeClassName")
    return {"spec": {"runtimeClassName": name}} if name else {}


def _kept_metadata(meta: ObjectMeta) -> ObjectMeta:
    if _LAST_APPLIED not in meta.annotations:
        return meta
    kept = {key: value for key, value in meta.annotations.items() if key != _LAST_APPLIED}
    return replace(meta, annotations=kept)


def kept_copies() -> Mapping[str, Callable[[Any], Any]]:
    """Return the plural of each resource that the controllers read → what is kept of an object."""
    return {**_KEPT, "nodes": _node_keeper()}


_KEPT: Mapping[str, Callable[[Any], Any]] = {
    "pods": _kept_pod,
    "replicasets": _kept_workload,
    "replicationcontrollers": _kept_workload,
    "deployments": _kept_workload,
    "statefulsets": _kept_workload,
    "daemonsets": _kept_workload,
    "jobs": _kept_workload,
    "cronjobs": _kept_cron_job,
    "namespaces": lambda namespace: namespace,
    "runtimeclasses": lambda runtime_class: runtime_class,
}


log = Log(__name__)


class _Controller(Protocol):
    async def run(self) -> None: ...


class RuntimeControllers:
    """All of them; they share the informers of the other controllers."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        recorder: Callable[[str], EventRecorder],
        options: ControllerOptions,
        clock: Clock,
        *,
        overhead_metrics: OverheadMetrics | None = None,
    ) -> None:
        """`recorder` returns the event recorder of a component, which its caller runs."""
        self._client = client
        self._clock = clock
        self._installs = options.installs_definitions
        self._profiles = profile_informer(client, clock)
        self._controllers: list[_Controller] = [
            RuntimeClassQuotaController(client, informers, clock),
            RuntimeRolloutController(
                client, informers, recorder("runtime-rollout-controller"), clock
            ),
            RuntimeInstallationController(
                client, informers, recorder("runtime-installation-controller"), clock
            ),
            OverheadDriftController(
                client,
                informers,
                self._profiles,
                recorder("overhead-drift-controller"),
                clock,
                metrics=overhead_metrics,
            ),
        ]
        if options.creates_classes:
            self._controllers.append(
                RuntimeClassController(client, informers, self._profiles, clock)
            )
        if options.removes_gates:
            self._controllers.append(
                RuntimeGateController(
                    client, informers, self._profiles, recorder("runtime-gate-controller"), clock
                )
            )

        if options.labels_floors:
            self._controllers.append(FloorLabelController(client, informers, clock))

    async def run(self) -> None:
        """Install the definitions, or wait until another program has; then run until cancelled."""
        if self._installs:
            await self._install()
        else:
            await wait_installed(self._client, self._clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._profiles.run())
            for controller in self._controllers:
                tasks.create_task(controller.run())

    async def _install(self) -> None:
        backoff = Backoff(first_s=0.2, limit_s=10.0)
        while True:
            try:
                return await install_definitions(self._client)
            except (StatusError, UnreachableError) as error:
                log.warning("definitions cannot be installed", error=error)
                await self._clock.sleep(backoff.next_s())
