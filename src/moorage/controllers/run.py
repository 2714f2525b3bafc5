"""Controller startup: builds all controllers and runs them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from moorage.api.bootstrap_tokens import SECRET_TYPE
from moorage.api.clock import Clock
from moorage.controllers import (
    cronjobs,
    daemonsets,
    deployments,
    garbage,
    jobs,
    nodes,
    replicasets,
    statefulsets,
)
from moorage.controllers.accounts import (
    LegacyTokenCleaner,
    RootCaController,
    TokenSecretController,
    default_accounts,
)
from moorage.controllers.bootstraptokens import BootstrapSigner, token_cleaner
from moorage.controllers.certificates import (
    CertificateController,
    TrustBundlePublisher,
    certificate_cleaner,
    pod_certificate_request_cleaner,
)
from moorage.controllers.claim_expansion import COMPONENT as EXPANSION_COMPONENT
from moorage.controllers.claim_expansion import claim_expansion
from moorage.controllers.cronjobs.controller import COMPONENT as CRON_JOB_COMPONENT
from moorage.controllers.daemonsets.controller import COMPONENT as DAEMON_SET_COMPONENT
from moorage.controllers.deployments.controller import COMPONENT as DEPLOYMENT_COMPONENT
from moorage.controllers.disruption import DisruptionController, stale_disruptions
from moorage.controllers.disruption.controller import COMPONENT as DISRUPTION_COMPONENT
from moorage.controllers.endpoints import EndpointsController, EndpointSliceMirroring
from moorage.controllers.endpoints.mirroring import COMPONENT as MIRRORING_COMPONENT
from moorage.controllers.ephemeral_volumes import COMPONENT as EPHEMERAL_COMPONENT
from moorage.controllers.ephemeral_volumes import EphemeralVolumeController
from moorage.controllers.garbage.collector import COMPONENT as GARBAGE_COMPONENT
from moorage.controllers.horizontalpodautoscalers import AutoscalerController
from moorage.controllers.horizontalpodautoscalers.controller import (
    COMPONENT as AUTOSCALER_COMPONENT,
)
from moorage.controllers.informers import Informers
from moorage.controllers.jobs.controller import COMPONENT as JOB_COMPONENT
from moorage.controllers.missing_network import COMPONENT as NETWORK_COMPONENT
from moorage.controllers.missing_network import MissingNetworkEvents
from moorage.controllers.namespaces import NamespaceController
from moorage.controllers.nodes.eviction import COMPONENT as EVICTION_COMPONENT
from moorage.controllers.nodes.lifecycle import COMPONENT as NODE_COMPONENT
from moorage.controllers.objects import POD_CERTIFICATE_REQUESTS
from moorage.controllers.options import ControllerOptions
from moorage.controllers.overhead_drift import OverheadMetrics
from moorage.controllers.persistentvolumes import LocalPathProvisioner, PersistentVolumeController
from moorage.controllers.persistentvolumes.controller import COMPONENT as VOLUME_COMPONENT
from moorage.controllers.persistentvolumes.provisioner import COMPONENT as PROVISIONER_COMPONENT
from moorage.controllers.pod_garbage import PodGarbageCollector
from moorage.controllers.replicasets.controller import COMPONENT as REPLICA_SET_COMPONENT
from moorage.controllers.replicasets.controller import REPLICATION_COMPONENT
from moorage.controllers.resourcequotas import ResourceQuotaController
from moorage.controllers.role_aggregation import role_aggregation
from moorage.controllers.runtime_copies import kept_copies
from moorage.controllers.runtimes import RuntimeControllers
from moorage.controllers.servicecidrs import IPAddressController, ServiceCIDRController
from moorage.controllers.statefulsets.controller import COMPONENT as STATEFUL_SET_COMPONENT
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
    recorders: list[EventRecorder] = []

    def recorder(component: str) -> EventRecorder:
        recorders.append(EventRecorder(client, component, clock=clock))
        return recorders[-1]

    replica_sets = replicasets.ReplicaSetController(
        client, informers, informers.replica_sets, recorder(REPLICA_SET_COMPONENT), clock
    )
    replication = replicasets.ReplicaSetController(
        client,
        informers,
        informers.replication_controllers,
        recorder(REPLICATION_COMPONENT),
        clock,
    )
    deployment = deployments.DeploymentController(
        client, informers, recorder(DEPLOYMENT_COMPONENT), clock
    )
    stateful_sets = statefulsets.StatefulSetController(
        client, informers, recorder(STATEFUL_SET_COMPONENT), clock
    )
    daemon_sets = daemonsets.DaemonSetController(
        client, informers, recorder(DAEMON_SET_COMPONENT), clock
    )
    job = jobs.JobController(client, informers, recorder(JOB_COMPONENT), clock)
    cron_job = cronjobs.CronJobController(client, informers, recorder(CRON_JOB_COMPONENT), clock)
    disruption = DisruptionController(client, informers, recorder(DISRUPTION_COMPONENT), clock)
    autoscaler = AutoscalerController(
        client, informers, recorder(AUTOSCALER_COMPONENT), options, clock
    )
    namespaces = NamespaceController(client, informers, clock)
    mirroring = EndpointSliceMirroring(client, informers, recorder(MIRRORING_COMPONENT), clock)
    quotas = ResourceQuotaController(client, informers, clock)
    volumes = PersistentVolumeController(client, informers, recorder(VOLUME_COMPONENT), clock)

    ephemeral = EphemeralVolumeController(client, informers, recorder(EPHEMERAL_COMPONENT), clock)
    own_group = RuntimeControllers(
        runtimes or client, informers, recorder, options, clock, overhead_metrics=overhead_metrics
    )
    expansion = claim_expansion(informers, recorder(EXPANSION_COMPONENT), clock)

    missing_network = MissingNetworkEvents(client, recorder(NETWORK_COMPONENT), clock)

    def removed(resource: Resource[Any], namespace: str) -> None:
        namespaces.object_removed(resource, namespace)
        quotas.object_removed(resource, namespace)

    collector = garbage.GarbageCollector(
        client, informers, recorder(GARBAGE_COMPONENT), removed, clock
    )
    lifecycle = nodes.NodeLifecycleController(
        client, informers, recorder(NODE_COMPONENT), options, clock
    )
    evictions = nodes.TaintEvictionController(
        client, informers, recorder(EVICTION_COMPONENT), clock
    )
    tokens = Informer(client, SECRETS, field_selector=f"type={SECRET_TYPE}", clock=clock)
    loops = [
        tokens.run(),
        token_cleaner(client, tokens, clock).run(),
        BootstrapSigner(client, tokens, clock).run(),
        replica_sets.run(workers=options.replica_set_workers),
        replication.run(workers=options.replication_controller_workers),
        deployment.run(workers=options.deployment_workers),
        stateful_sets.run(workers=options.stateful_set_workers),
        daemon_sets.run(workers=options.daemon_set_workers),
        job.run(workers=options.job_workers),
        cron_job.run(workers=options.cron_job_workers),
        jobs.orphan_release(client, informers, clock).run(workers=options.job_workers),
        jobs.ttl_after_finished(client, informers, clock).run(),
        disruption.run(),
        autoscaler.run(workers=options.autoscaler_workers),
        quotas.run(workers=options.resource_quota_workers),
        stale_disruptions(client, informers, clock).run(),
        collector.run(workers=options.garbage_workers),
        namespaces.run(workers=options.namespace_workers),
        default_accounts(client, informers, clock).run(),
        RootCaController(client, informers, options.cluster_ca, clock).run(),
        TokenSecretController(client, informers, options.cluster_ca, clock).run(),
        LegacyTokenCleaner(client, timedelta(seconds=options.legacy_token_unused_s), clock).run(),
        CertificateController(
            client, informers, options.cluster_ca, options.cluster_ca_key, clock
        ).run(),
        certificate_cleaner(client, informers, clock).run(),
        run_when_served(
            client,
            POD_CERTIFICATE_REQUESTS,
            clock,
            pod_certificate_request_cleaner(client, clock).run,
        ),
        run_when_served(
            client,
            CLUSTER_TRUST_BUNDLES,
            clock,
            TrustBundlePublisher(client, options.cluster_ca, clock).run,
        ),
        ServiceCIDRController(client, informers, clock).run(),
        IPAddressController(client, informers, clock).run(),
        lifecycle.run(),
        evictions.run(),
        PodGarbageCollector(client, informers, options, clock).run(),
        EndpointsController(client, informers, clock).run(),
        mirroring.run(),
        volumes.run(),
        claim_protection(client, informers, clock).run(),
        volume_protection(client, informers, clock).run(),
        attributes_class_protection(client, informers, clock).run(),
        ephemeral.run(),
        expansion.run(),
        ValidatingAdmissionPolicyStatusController(client, clock).run(),
        role_aggregation(client, informers, clock).run(),
        *((own_group.run(),) if options.runs_runtimes else ()),
        *((missing_network.run(),) if options.lacks_network else ()),
        informers.run(),
        *(recorder.run() for recorder in recorders),
    ]
    async with asyncio.TaskGroup() as tasks:
        for loop in loops:
            tasks.create_task(loop)


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
    recorders: list[EventRecorder] = []

    def recorder(component: str) -> EventRecorder:
        recorders.append(EventRecorder(client, component, clock=clock))
        return recorders[-1]

    own = RuntimeControllers(
        client, informers, recorder, options, clock, overhead_metrics=overhead_metrics
    )
    async with asyncio.TaskGroup() as tasks:
        if webhook is not None:
            # First of all: no pod of a class is admitted without it.
            tasks.create_task(WebhookCertificateController(client, webhook, clock).run())
        tasks.create_task(own.run())
        tasks.create_task(informers.run())
        for one in recorders:
            tasks.create_task(one.run())


async def run_alone(
    client: Client, runtimes: Client, options: ControllerOptions, clock: Clock
) -> None:
    """Run what no other controller manager has, beside one, until cancelled.

    That is the provisioner of local volumes with `client`, and the controllers of our own group
    with `runtimes`.
    """
    informers = Informers(client, clock)
    recorders: list[EventRecorder] = []

    def recorder(component: str) -> EventRecorder:
        recorders.append(EventRecorder(client, component, clock=clock))
        return recorders[-1]

    provisioner = LocalPathProvisioner(client, informers, recorder(PROVISIONER_COMPONENT), clock)
    own = RuntimeControllers(runtimes, informers, recorder, options, clock)
    missing_network = MissingNetworkEvents(client, recorder(NETWORK_COMPONENT), clock)
    async with asyncio.TaskGroup() as tasks:
        loops = [
            provisioner.run(),
            informers.run(),
            *((own.run(),) if options.runs_runtimes else ()),
            *((missing_network.run(),) if options.lacks_network else ()),
        ]
        for loop in loops:
            tasks.create_task(loop)
        for one in recorders:
            tasks.create_task(one.run())
