"""Admission plugins: all of them, in the order in which they run.

Source: `RecommendedPluginOrder` of `kubeapiserver/options`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moorage.admission.certificates import (
    CertificateApproval,
    CertificateRequester,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
    NodeCertificateRequests,
    PodCertificateSigning,
)
from moorage.admission.chain import AdmissionChain, Plugin
from moorage.admission.claim_resize import PersistentVolumeClaimResize
from moorage.admission.configuration import AdmissionOptions
from moorage.admission.default_ingress_class import DefaultIngressClass
from moorage.admission.default_storage_class import DefaultStorageClass
from moorage.admission.default_tolerations import DefaultTolerationSeconds
from moorage.admission.host_ports import HostPortAdmission
from moorage.admission.limit_ranger import LimitRanger
from moorage.admission.missing_network import MissingNetwork
from moorage.admission.namespaces import NamespaceLifecycle
from moorage.admission.node_owned_objects import NodeOwnedObjects
from moorage.admission.node_restriction import NodeRestriction
from moorage.admission.patched import Patching
from moorage.admission.pod_resize import PodResizeValidator
from moorage.admission.pod_security import PodSecurity
from moorage.admission.pod_topology_labels import PodTopologyLabels
from moorage.admission.policies import (
    CachedParams,
    CachedPolicies,
    ConfigurationMerge,
    MutatingPolicies,
    Selection,
    ValidatingPolicies,
)
from moorage.admission.priority import PriorityAdmission
from moorage.admission.rbac_escalation import RbacEscalation
from moorage.admission.resource_quota import ResourceQuotaAdmission, WriteUsed
from moorage.admission.runtime_class import RuntimeClassAdmission
from moorage.admission.runtime_policies import RuntimePolicyAdmission, RuntimePolicyWrites
from moorage.admission.runtime_policies.class_quotas import RuntimeClassQuotaAdmission
from moorage.admission.runtime_policies.class_quotas import WriteUsed as WriteClassUsed
from moorage.admission.runtime_policies.sources import CustomReader, RuntimeFacts
from moorage.admission.service_account import ServiceAccountAdmission
from moorage.admission.service_addresses import ServiceAddresses
from moorage.admission.storage_protection import StorageObjectInUseProtection
from moorage.admission.taint_nodes import TaintNewNodes
from moorage.admission.webhooks import (
    CachedWebhooks,
    Dispatch,
    MutatingWebhooks,
    ValidatingWebhooks,
)
from moorage.api.clock import Clock
from moorage.api.host_ports import Listener
from moorage.api.runtime_quotas import RuntimeClassQuota
from moorage.apiserver.authorization import Authorizer
from moorage.apiserver.readers import Readers
from moorage.cel.evaluator import Evaluator
from moorage.registry.codec import Codec
from moorage.registry.kind import Kind
from moorage.registry.kinds.mutatingadmissionpolicy import MUTATING_ADMISSION_POLICY
from moorage.registry.kinds.mutatingadmissionpolicybinding import (
    MUTATING_ADMISSION_POLICY_BINDING,
)
from moorage.registry.kinds.mutatingwebhookconfiguration import MUTATING_WEBHOOK_CONFIGURATION
from moorage.registry.kinds.validatingadmissionpolicy import VALIDATING_ADMISSION_POLICY
from moorage.registry.kinds.validatingadmissionpolicybinding import (
    VALIDATING_ADMISSION_POLICY_BINDING,
)
from moorage.registry.kinds.validatingwebhookconfiguration import (
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from moorage.registry.patch import MergeSchema
from moorage.registry.rbac import RuleResolver
from moorage.registry.resource_map import ResourceMap
from moorage.registry.stored import Stored
from moorage.registry.worker import Worker
from moorage.storage import Store, WatchCache
from moorage.webhooks import WebhookClient


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
    lacks_network: bool = False
    options: AdmissionOptions = AdmissionOptions()

    def chain(self) -> AdmissionChain:
        """Return the plugins as a chain, whose sources follow the store from now on."""
        dispatch = Dispatch(
            self.webhooks, self.evaluator, self.readers.find_namespace, self.authorizer.decide
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
        """Return what upstream decides in the registry, after admission."""
        readers = self.readers
        return [
            CertificateRequester(self.clock),
            PodCertificateSigning(self.authorizer.is_allowed, self.clock),
            ServiceAddresses(
                readers.services.all, readers.service_networks, readers.claimed_addresses
            ),
            HostPortAdmission(self.listeners, readers.nodes.all),
            RbacEscalation(self.resolver, self.authorizer.is_allowed),
            *((MissingNetwork(),) if self.lacks_network else ()),
        ]

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
