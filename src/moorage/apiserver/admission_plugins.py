"""Admission plugins: all of them, in the order in which they run.

Source: `RecommendedPluginOrder` of `kubeapiserver/options`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from moorage.admission.chain import AdmissionChain, Plugin
from moorage.admission.default_ingress_class import DefaultIngressClass
from moorage.admission.default_tolerations import DefaultTolerationSeconds
from moorage.admission.host_ports import HostPortAdmission
from moorage.admission.limit_ranger import LimitRanger
from moorage.admission.namespaces import NamespaceLifecycle
from moorage.admission.node_restriction import NodeRestriction
from moorage.admission.pod_resize import PodResizeValidator
from moorage.admission.pod_security import PodSecurity
from moorage.admission.policies import ValidatingPolicies
from moorage.admission.policies.sources import CachedParams, CachedPolicies
from moorage.admission.priority import PriorityAdmission
from moorage.admission.rbac_escalation import RbacEscalation
from moorage.admission.resource_quota import ResourceQuotaAdmission, WriteUsed
from moorage.admission.runtime_class import RuntimeClassAdmission
from moorage.admission.service_account import ServiceAccountAdmission
from moorage.admission.service_addresses import ServiceAddresses
from moorage.admission.taint_nodes import TaintNewNodes
from moorage.admission.webhooks import (
    CachedWebhooks,
    Dispatch,
    MutatingWebhooks,
    ValidatingWebhooks,
    WebhookClient,
)
from moorage.api.clock import Clock
from moorage.api.host_ports import Listener
from moorage.apiserver.authorization import Authorizer
from moorage.apiserver.readers import Readers
from moorage.cel.evaluator import Evaluator
from moorage.registry.codec import Codec
from moorage.registry.kinds.mutatingwebhookconfiguration import MUTATING_WEBHOOK_CONFIGURATION
from moorage.registry.kinds.validatingwebhookconfiguration import (
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from moorage.registry.rbac import RuleResolver
from moorage.registry.resource_map import ResourceMap
from moorage.registry.stored import Stored
from moorage.registry.worker import Worker
from moorage.storage import Store, WatchCache


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPlugins:
    """What the plugins decide with."""

    store: Store
    cache: WatchCache[Stored]
    readers: Readers
    resolver: RuleResolver
    authorizer: Authorizer
    evaluator: Evaluator
    webhooks: WebhookClient
    codec: Codec
    worker: Worker
    resource_map: ResourceMap
    write_used: WriteUsed
    clock: Clock
    listeners: Iterable[Listener]
    service_network: ipaddress.IPv4Network
    has_runtime_classes: bool = True

    def chain(self) -> AdmissionChain:
        """Return the plugins as a chain, whose sources follow the store from now on."""
        dispatch = Dispatch(self.webhooks, self.evaluator, self.readers.find_namespace)
        return AdmissionChain(
            [*self._mutating(dispatch), *self._checking(), *self._validating(dispatch)]
        )

    def _mutating(self, dispatch: Dispatch) -> list[Plugin]:
        readers = self.readers
        webhooks = CachedWebhooks(self.cache, MUTATING_WEBHOOK_CONFIGURATION)
        self.store.listen(webhooks.changed)
        return [
            NamespaceLifecycle(readers.namespaces.get),
            LimitRanger(readers.limit_ranges.all),
            ServiceAccountAdmission(readers.accounts.get),
            NodeRestriction(readers.find_pod, readers.nodes.get, self.authorizer.is_allowed),
            TaintNewNodes(),
            PodSecurity(readers.namespace_labels, readers.stored_pods, self.clock),
            PriorityAdmission(readers.priorities.get, readers.priorities.all),
            DefaultTolerationSeconds(),
            RuntimeClassAdmission(readers.classes.get, is_enabled=self.has_runtime_classes),
            DefaultIngressClass(readers.ingress_classes.all),
            PodResizeValidator(readers.nodes.get),
            MutatingWebhooks(webhooks, dispatch, self.codec, self.worker),
        ]

    def _checking(self) -> list[Plugin]:
        """Return what upstream decides in the registry, after admission."""
        readers = self.readers
        return [
            ServiceAddresses(readers.services.all, self.service_network),
            HostPortAdmission(self.listeners, readers.nodes.all),
            RbacEscalation(self.resolver, self.authorizer.is_allowed),
        ]

    def _validating(self, dispatch: Dispatch) -> list[Plugin]:
        policies = CachedPolicies(self.cache)
        self.store.listen(policies.changed)
        webhooks = CachedWebhooks(self.cache, VALIDATING_WEBHOOK_CONFIGURATION)
        self.store.listen(webhooks.changed)
        return [
            ValidatingPolicies(
                policies,
                CachedParams(self.cache, self.resource_map),
                self.readers.find_namespace,
                self.evaluator,
            ),
            ValidatingWebhooks(webhooks, dispatch),
            ResourceQuotaAdmission(self.readers.quotas_of, self.write_used, self.clock),
        ]
