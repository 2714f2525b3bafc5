"""Every kind that is served, one module each. The order is that of discovery."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.admissionpolicies import (
    MUTATING_ADMISSION_POLICY,
    MUTATING_ADMISSION_POLICY_BINDING,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
)
from moorage.apiserver.registry.kinds.apiservice import API_SERVICE
from moorage.apiserver.registry.kinds.apps import CONTROLLER_REVISION, DAEMON_SET, REPLICA_SET
from moorage.apiserver.registry.kinds.certificatesigningrequest import CERTIFICATE_SIGNING_REQUEST
from moorage.apiserver.registry.kinds.clustertrustbundle import CLUSTER_TRUST_BUNDLE
from moorage.apiserver.registry.kinds.core import (
    CONFIG_MAP,
    NAMESPACE,
    POD_TEMPLATE,
    SECRET,
    SERVICE_ACCOUNT,
)
from moorage.apiserver.registry.kinds.cronjob import CRON_JOB
from moorage.apiserver.registry.kinds.csi import CSI_DRIVER, CSI_NODE, CSI_STORAGE_CAPACITY
from moorage.apiserver.registry.kinds.customresourcedefinition import CUSTOM_RESOURCE_DEFINITION
from moorage.apiserver.registry.kinds.deployment import DEPLOYMENT
from moorage.apiserver.registry.kinds.devices import DEVICE_CLASS, DEVICE_TAINT_RULE
from moorage.apiserver.registry.kinds.endpoints import ENDPOINT_SLICE, ENDPOINTS
from moorage.apiserver.registry.kinds.event import EVENT
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA
from moorage.apiserver.registry.kinds.horizontalpodautoscaler import HORIZONTAL_POD_AUTOSCALER
from moorage.apiserver.registry.kinds.ingress import INGRESS, INGRESS_CLASS
from moorage.apiserver.registry.kinds.job import JOB
from moorage.apiserver.registry.kinds.lease import LEASE
from moorage.apiserver.registry.kinds.networking import IP_ADDRESS, NETWORK_POLICY, SERVICE_CIDR
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.kinds.persistentvolume import PERSISTENT_VOLUME
from moorage.apiserver.registry.kinds.persistentvolumeclaim import PERSISTENT_VOLUME_CLAIM
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.podcertificaterequest import POD_CERTIFICATE_REQUEST
from moorage.apiserver.registry.kinds.poddisruptionbudget import POD_DISRUPTION_BUDGET
from moorage.apiserver.registry.kinds.priorityclass import PRIORITY_CLASS
from moorage.apiserver.registry.kinds.prioritylevelconfiguration import PRIORITY_LEVEL_CONFIGURATION
from moorage.apiserver.registry.kinds.quotas import LIMIT_RANGE, RESOURCE_QUOTA
from moorage.apiserver.registry.kinds.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
)
from moorage.apiserver.registry.kinds.replicationcontroller import REPLICATION_CONTROLLER
from moorage.apiserver.registry.kinds.resourceclaim import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from moorage.apiserver.registry.kinds.resourceslice import RESOURCE_SLICE
from moorage.apiserver.registry.kinds.runtimeclass import RUNTIME_CLASS
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.kinds.statefulset import STATEFUL_SET
from moorage.apiserver.registry.kinds.storage import (
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    VOLUME_ATTRIBUTES_CLASS,
)
from moorage.apiserver.registry.kinds.storageversionmigration import STORAGE_VERSION_MIGRATION
from moorage.apiserver.registry.kinds.unstored import BINDING, COMPONENT_STATUS, METRICS, REVIEWS
from moorage.apiserver.registry.kinds.webhookconfigurations import (
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_WEBHOOK_CONFIGURATION,
)

STORED_KINDS: tuple[Kind, ...] = (
    NAMESPACE,
    NODE,
    POD,
    CONFIG_MAP,
    SECRET,
    SERVICE_ACCOUNT,
    SERVICE,
    ENDPOINTS,
    EVENT,
    DEPLOYMENT,
    REPLICA_SET,
    RUNTIME_CLASS,
    LEASE,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    PRIORITY_CLASS,
    ENDPOINT_SLICE,
    LIMIT_RANGE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD_TEMPLATE,
    REPLICATION_CONTROLLER,
    RESOURCE_QUOTA,
    CONTROLLER_REVISION,
    DAEMON_SET,
    STATEFUL_SET,
    CRON_JOB,
    JOB,
    HORIZONTAL_POD_AUTOSCALER,
    POD_DISRUPTION_BUDGET,
    INGRESS_CLASS,
    INGRESS,
    IP_ADDRESS,
    NETWORK_POLICY,
    SERVICE_CIDR,
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    VOLUME_ATTRIBUTES_CLASS,
    CERTIFICATE_SIGNING_REQUEST,
    CLUSTER_TRUST_BUNDLE,
    POD_CERTIFICATE_REQUEST,
    MUTATING_ADMISSION_POLICY,
    MUTATING_ADMISSION_POLICY_BINDING,
    MUTATING_WEBHOOK_CONFIGURATION,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
    VALIDATING_WEBHOOK_CONFIGURATION,
    CUSTOM_RESOURCE_DEFINITION,
    API_SERVICE,
    FLOW_SCHEMA,
    PRIORITY_LEVEL_CONFIGURATION,
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    RESOURCE_SLICE,
    STORAGE_VERSION_MIGRATION,
)
"""Kinds whose objects are stored."""

ALL_KINDS: tuple[Kind, ...] = (
    *STORED_KINDS,
    BINDING,
    COMPONENT_STATUS,
    *REVIEWS,
    *METRICS,
)
"""Kinds that are served, including those whose objects are not stored."""
