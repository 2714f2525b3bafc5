"""Controller startup: builds all controllers and runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol

from moorage.api.bootstrap_tokens import SECRET_TYPE
from moorage.api.claims.classes import PROVISIONER
from moorage.api.clock import Clock
from moorage.controllers import loadbalancers
from moorage.controllers.accounts import (
    LegacyTokenCleaner,
    RootCaController,
    TokenSecretController,
    default_accounts,
)
from moorage.controllers.bootstraptokens import bootstrap_signer, token_cleaner
from moorage.controllers.certificates import (
    CertificateController,
    certificate_cleaner,
    pod_certificate_request_cleaner,
    trust_bundle_publisher,
)
from moorage.controllers.cronjobs import CronJobController
from moorage.controllers.daemonsets import DaemonSetController
from moorage.controllers.deployments import DeploymentController
from moorage.controllers.disruption import DisruptionController, stale_disruptions
from moorage.controllers.endpoints import EndpointsController, EndpointSliceMirroring
from moorage.controllers.ephemeral_volumes import EphemeralVolumeController, claim_expansion
from moorage.controllers.garbage import GarbageCollector
from moorage.controllers.horizontalpodautoscalers import AutoscalerController
from moorage.controllers.informers import Informers
from moorage.controllers.jobs import JobController, orphan_release, ttl_after_finished
from moorage.controllers.loadbalancers import LoadBalancerController
from moorage.controllers.missing_network import MissingNetworkEvents
from moorage.controllers.namespaces import NamespaceController
from moorage.controllers.nodes import NodeLifecycleController, TaintEvictionController
from moorage.controllers.objects import POD_CERTIFICATE_REQUESTS
from moorage.controllers.options import ControllerOptions
from moorage.controllers.overhead_drift import OverheadMetrics
from moorage.controllers.persistentvolumes import LocalPathProvisioner, PersistentVolumeController
from moorage.controllers.pod_garbage import PodGarbageCollector
from moorage.controllers.replicasets import ReplicaSetController
from moorage.controllers.resourcequotas import ResourceQuotaController
from moorage.controllers.role_aggregation import role_aggregation
from moorage.controllers.runtimes import RuntimeControllers, kept_copies
from moorage.controllers.servicecidrs import IPAddressController, ServiceCIDRController
from moorage.controllers.statefulsets import StatefulSetController
from moorage.controllers.storage_protection import (
    attributes_class_protection,
    claim_protection,
    volume_protection,
)
from moorage.controllers.validatingadmissionpolicies import (
    ValidatingAdmissionPolicyStatusController,
)
from moorage.controllers.webhookcertificates import WebhookCertificateController, WebhookService
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import CLUSTER_TRUST_BUNDLES, SECRETS, Resource
from moorage.wire.client.rest import Client
from moorage.wire.client.served import run_when_served


class _Controller(Protocol):
    def run(self, *, workers: int | None = None) -> Coroutine[Any, Any, None]: ...


_Recording = Callable[[Client, Informers, EventRecorder, Clock], _Controller]
_Silent = Callable[[Client, Informers, Clock], _Controller]


async def run_controllers(
    client: Client,
    options: ControllerOptions,
    clock: Clock,
    *,
    runtimes: Client | None = None,
    overhead_metrics: OverheadMetrics | None = None,
) -> None:
    """Run all controllers until cancelled; those of our own group with `runtimes`, if it is given.

    A failure outside the reconcile of a single key ends all controllers, and the supervisor
    restarts them. Nothing is lost, as they are level-triggered: they act on the current state.
    """
    informers = Informers(client, clock)
    recorder = _Recorders(client, clock)
    namespaces = NamespaceController(client, informers, clock)
    quotas = ResourceQuotaController(client, informers, clock)

    def removed(resource: Resource[Any], namespace: str) -> None:
        namespaces.object_removed(resource, namespace)
        quotas.object_removed(resource, namespace)

    sets = (
        (informers.replica_sets, "replicaset-controller", options.replica_set_workers),
        (informers.replication_controllers, "replication-controller",
         options.replication_controller_workers),
    )  # fmt: skip
    # Each: what makes it, the component that its events name, its workers if they can be set.
    recording: tuple[tuple[_Recording, str, int | None], ...] = (
        (DeploymentController, "deployment-controller", options.deployment_workers),
        (StatefulSetController, "statefulset-controller", options.stateful_set_workers),
        (DaemonSetController, "daemonset-controller", options.daemon_set_workers),
        (JobController, "job-controller", options.job_workers),
        (CronJobController, "cronjob-controller", options.cron_job_workers),
        (DisruptionController, "controllermanager", None),
        (EndpointSliceMirroring, "endpoint-slice-mirroring-controller", None),
        (PersistentVolumeController, "persistentvolume-controller", None),
        (EphemeralVolumeController, "ephemeral_volume", None),
        (TaintEvictionController, "taint-eviction-controller", None),
    )
    silent: tuple[tuple[_Silent, int | None], ...] = (
        (orphan_release, options.job_workers),
        (ttl_after_finished, None),
        (stale_disruptions, None),
        (default_accounts, None),
        (certificate_cleaner, None),
        (ServiceCIDRController, None),
        (IPAddressController, None),
        (EndpointsController, None),
        (claim_protection, None),
        (volume_protection, None),
        (attributes_class_protection, None),
        (role_aggregation, None),
    )
    tokens = Informer(client, SECRETS, field_selector=f"type={SECRET_TYPE}", clock=clock)
    ca = options.cluster_ca
    own_group = RuntimeControllers(
        runtimes or client, informers, recorder, options, clock, overhead_metrics=overhead_metrics
    )
    loops = [
        *(
            ReplicaSetController(client, informers, of, recorder(component), clock).run(
                workers=workers
            )
            for of, component, workers in sets
        ),
        *(
            make(client, informers, recorder(component), clock).run(workers=workers)
            for make, component, workers in recording
        ),
        *(make(client, informers, clock).run(workers=workers) for make, workers in silent),
        namespaces.run(workers=options.namespace_workers),
        quotas.run(workers=options.resource_quota_workers),
        GarbageCollector(
            client, informers, recorder("garbage-collector-controller"), removed, clock
        ).run(workers=options.garbage_workers),
        AutoscalerController(
            client, informers, recorder("horizontal-pod-autoscaler"), options, clock
        ).run(workers=options.autoscaler_workers),
        NodeLifecycleController(
            client, informers, recorder("node-controller"), options, clock
        ).run(),
        PodGarbageCollector(client, informers, options, clock).run(),
        claim_expansion(informers, recorder("volume_expand"), clock).run(),
        tokens.run(),
        token_cleaner(client, tokens, clock).run(),
        bootstrap_signer(client, tokens, clock).run(),
        RootCaController(client, informers, ca, clock).run(),
        TokenSecretController(client, informers, ca, clock).run(),
        LegacyTokenCleaner(client, timedelta(seconds=options.legacy_token_unused_s), clock).run(),
        CertificateController(client, informers, ca, options.cluster_ca_key, clock).run(),
        run_when_served(
            client, POD_CERTIFICATE_REQUESTS, clock,
            pod_certificate_request_cleaner(client, clock).run,
        ),
        run_when_served(
            client, CLUSTER_TRUST_BUNDLES, clock, trust_bundle_publisher(client, ca, clock).run
        ),
        ValidatingAdmissionPolicyStatusController(client, clock).run(),
    ]  # fmt: skip
    if options.load_balancer_addresses:
        balancers = LoadBalancerController(
            client,
            informers,
            recorder(loadbalancers.COMPONENT),
            clock,
            options.load_balancer_addresses,
            options.is_listening,
        )
        loops.append(balancers.run())
    if options.runs_runtimes:
        loops.append(own_group.run())
    if options.missing_network:
        events = MissingNetworkEvents(
            client, recorder("missing-network"), clock, options.missing_network
        )
        loops.append(events.run())
    await _run_all(*loops, informers.run(), recorder.run())


async def run_runtimes(
    client: Client,
    options: ControllerOptions,
    clock: Clock,
    *,
    webhook: WebhookService | None = None,
    overhead_metrics: OverheadMetrics | None = None,
) -> None:
    """Run the controllers of our own group alone, beside another controller manager.

    With `webhook` its certificate is issued and rotated too. Runs until cancelled.
    """
    informers = Informers(client, clock, kept=kept_copies())
    recorder = _Recorders(client, clock)
    own = RuntimeControllers(
        client, informers, recorder, options, clock, overhead_metrics=overhead_metrics
    )
    # The webhook's certificate first of all: no pod of a class is admitted without it.
    certificate = (
        [] if webhook is None else [WebhookCertificateController(client, webhook, clock).run()]
    )
    await _run_all(*certificate, own.run(), informers.run(), recorder.run())


async def run_alone(
    client: Client, runtimes: Client, options: ControllerOptions, clock: Clock
) -> None:
    """Run what no other controller manager has, beside one, until cancelled.

    That is the provisioner of local volumes with `client`, and the controllers of our own group
    with `runtimes`.
    """
    informers = Informers(client, clock)
    recorder = _Recorders(client, clock)
    own = RuntimeControllers(runtimes, informers, recorder, options, clock)
    loops = [LocalPathProvisioner(client, informers, recorder(PROVISIONER), clock).run()]
    if options.runs_runtimes:
        loops.append(own.run())
    if options.missing_network:
        events = MissingNetworkEvents(
            client, recorder("missing-network"), clock, options.missing_network
        )
        loops.append(events.run())
    await _run_all(*loops, informers.run(), recorder.run())


class _Recorders:
    """Makes a recorder of events for each component that asks, and runs them all."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._made: list[EventRecorder] = []

    def __call__(self, component: str) -> EventRecorder:
        self._made.append(EventRecorder(self._client, component, clock=self._clock))
        return self._made[-1]

    async def run(self) -> None:
        """Send the events of all components made so far, until cancelled."""
        await _run_all(*(recorder.run() for recorder in self._made))


async def _run_all(*loops: Coroutine[Any, Any, None]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for loop in loops:
            tasks.create_task(loop)
