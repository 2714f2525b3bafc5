"""Admission plugins: all of them, in the order in which they run.

Source: `RecommendedPluginOrder` of `kubeapiserver/options`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from moorage.api.clock import Clock
from moorage.api.host_ports import Listener
from moorage.api.missing_network import NOTHING
from moorage.api.runtime_group import RuntimeClassQuota
from moorage.apiserver.admission.admission_request import Patching
from moorage.apiserver.admission.certificates import (
    CertificateApproval,
    CertificateRequester,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
    NodeCertificateRequests,
    PodCertificateSigning,
)
from moorage.apiserver.admission.chain import AdmissionChain, Plugin
from moorage.apiserver.admission.configuration import AdmissionOptions
from moorage.apiserver.admission.default_classes import DefaultIngressClass, DefaultStorageClass
from moorage.apiserver.admission.default_tolerations import DefaultTolerationSeconds
from moorage.apiserver.admission.host_ports import HostPortAdmission
from moorage.apiserver.admission.limit_ranger import LimitRanger
from moorage.apiserver.admission.namespaces import NamespaceLifecycle
from moorage.apiserver.admission.node_owned_objects import NodeOwnedObjects
from moorage.apiserver.admission.node_restriction import NodeRestriction, TaintNewNodes
from moorage.apiserver.admission.persistent_volume_claims import (
    PersistentVolumeClaimResize,
    StorageObjectInUseProtection,
)
from moorage.apiserver.admission.pod_resize import PodResizeValidator
from moorage.apiserver.admission.pod_security import PodSecurity
from moorage.apiserver.admission.pod_topology_labels import PodTopologyLabels
from moorage.apiserver.admission.policies import (
    CachedParams,
    CachedPolicies,
    ConfigurationMerge,
    MutatingPolicies,
    Selection,
    ValidatingPolicies,
)
from moorage.apiserver.admission.priority import PriorityAdmission
from moorage.apiserver.admission.rbac_escalation import RbacEscalation
from moorage.apiserver.admission.resource_quota import ResourceQuotaAdmission, WriteUsed
from moorage.apiserver.admission.runtime_class import RuntimeClassAdmission
from moorage.apiserver.admission.runtime_policies import RuntimePolicyAdmission, RuntimePolicyWrites
from moorage.apiserver.admission.runtime_policies.class_quotas import RuntimeClassQuotaAdmission
from moorage.apiserver.admission.runtime_policies.class_quotas import WriteUsed as WriteClassUsed
from moorage.apiserver.admission.runtime_policies.sources import CustomReader, RuntimeFacts
from moorage.apiserver.admission.service_account import ServiceAccountAdmission
from moorage.apiserver.admission.service_addresses import MissingNetwork, ServiceAddresses
from moorage.apiserver.admission.webhooks import (
    CachedWebhooks,
    Dispatch,
    MutatingWebhooks,
    ValidatingWebhooks,
)
from moorage.apiserver.authorization import Authorizer
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.endpoints.readers import Readers
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.admissionpolicies import (
    MUTATING_ADMISSION_POLICY,
    MUTATING_ADMISSION_POLICY_BINDING,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
)
from moorage.apiserver.registry.kinds.webhookconfigurations import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from moorage.apiserver.registry.patch import MergeSchema
from moorage.apiserver.registry.rbac import RuleResolver
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.worker import Worker
from moorage.apiserver.storage import Store, WatchCache
from moorage.wire.webhooks import WebhookClient


class AdmissionPlugins(msgspec.Struct, frozen=True, kw_only=True):
    """What the plugins decide with."""

    store: Store
    cache: WatchCache[Stored]
    readers: Readers
    resolver: RuleResolver
    authorizer: Authorizer
    evaluator: Evaluator
    webhooks: WebhookClient
    codec: Codec
    merge_schema: MergeSchema
    worker: Worker
    resource_map: ResourceMap
    write_used: WriteUsed
    class_quotas: CustomReader[RuntimeClassQuota]
    write_class_used: WriteClassUsed
    clock: Clock
    listeners: Iterable[Listener]
    has_runtime_classes: bool = True
    missing_network: frozenset[str] = NOTHING
    options: AdmissionOptions = AdmissionOptions()
    webhooks_s: float
    """Time for all webhooks of a request."""

    def chain(self) -> AdmissionChain:
        """Return the plugins as a chain, whose sources follow the store from now on."""
        dispatch = Dispatch(
            self.webhooks,
            self.evaluator,
            self.readers.find_namespace,
            self.authorizer.decide,
            self.webhooks_s,
        )
        plugins = (*self._mutating(dispatch), *self._checking(), *self._validating(dispatch))
        disabled = self.options.disabled
        return AdmissionChain([plugin for plugin in plugins if plugin.name not in disabled])

    def _mutating(self, dispatch: Dispatch) -> list[Plugin]:
        readers = self.readers
        webhooks = CachedWebhooks(self.cache, MUTATING_WEBHOOK_CONFIGURATION)
        self.store.listen(webhooks.changed)
        facts = RuntimeFacts(self.cache, self.resource_map)
        self.store.listen(facts.changed)
        patching = Patching(self.codec, self.worker)
        return [
            NamespaceLifecycle(readers.namespaces.get),
            LimitRanger(readers.limit_ranges.all),
            ServiceAccountAdmission(readers.accounts.get),
            NodeRestriction(readers.find_pod, readers.nodes.get, self.authorizer.is_allowed),
            NodeOwnedObjects(readers.find_pod, readers.nodes.get, readers.uid_of),
            NodeCertificateRequests(),
            TaintNewNodes(),
            PodSecurity(
                readers.namespace_labels,
                readers.stored_pods,
                self.clock,
                self.options.pod_security,
                self.options.pod_limits,
            ),
            PriorityAdmission(readers.priorities.get, readers.priorities.all),
            DefaultTolerationSeconds(),
            DefaultStorageClass(readers.storage_classes.all),
            StorageObjectInUseProtection(),
            PersistentVolumeClaimResize(readers.storage_classes.get),
            *([RuntimePolicyAdmission(facts)] if self.has_runtime_classes else ()),
            RuntimePolicyWrites(facts.index),
            RuntimeClassAdmission(readers.classes.get, is_enabled=self.has_runtime_classes),
            CertificateApproval(self.authorizer.is_allowed),
            CertificateSigning(self.authorizer.is_allowed),
            ClusterTrustBundleAttest(self.authorizer.is_allowed),
            CertificateSubjectRestriction(),
            DefaultIngressClass(readers.ingress_classes.all),
            PodTopologyLabels(readers.nodes.get),
            PodResizeValidator(readers.nodes.get),
            MutatingPolicies(
                self._selection(MUTATING_ADMISSION_POLICY, MUTATING_ADMISSION_POLICY_BINDING),
                CachedParams(self.cache, self.resource_map),
                self.evaluator,
                self.authorizer.decide,
                patching,
                ConfigurationMerge(self.codec, self.merge_schema),
            ),
            MutatingWebhooks(webhooks, dispatch, patching),
        ]

    def _selection(self, policy: Kind, binding: Kind) -> Selection:
        policies = CachedPolicies(self.cache, policy, binding)
        self.store.listen(policies.changed)
        return Selection(policies, self.readers.find_namespace)

    def _checking(self) -> list[Plugin]:
        """Return the plugins for rules that upstream has in the registry, after admission."""
        readers = self.readers
        return [
            CertificateRequester(self.clock),
            PodCertificateSigning(self.authorizer.is_allowed, self.clock),
            ServiceAddresses(
                readers.services.all, readers.service_networks, readers.claimed_addresses
            ),
            HostPortAdmission(self.listeners, readers.nodes.all),
            RbacEscalation(self.resolver, self.authorizer.is_allowed),
            *self._missing_network(),
        ]

    def _missing_network(self) -> Iterator[Plugin]:
        if self.missing_network:
            yield MissingNetwork(
                self.missing_network, lambda: any(True for _ in self.readers.ingress_classes.all())
            )

    def _validating(self, dispatch: Dispatch) -> list[Plugin]:
        webhooks = CachedWebhooks(self.cache, VALIDATING_WEBHOOK_CONFIGURATION)
        self.store.listen(webhooks.changed)
        return [
            ValidatingPolicies(
                self._selection(VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING),
                CachedParams(self.cache, self.resource_map),
                self.evaluator,
                self.authorizer.decide,
            ),
            ValidatingWebhooks(webhooks, dispatch),
            RuntimeClassQuotaAdmission(self.class_quotas.all, self.write_class_used, self.clock),
            ResourceQuotaAdmission(
                self.readers.quotas_of,
                self.write_used,
                self.clock,
                self.options.limited_resources,
            ),
        ]
