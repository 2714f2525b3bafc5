"""Every kind that is served, one module each. The order is that of discovery."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Kind
from moorage.apiserver.registry.kinds.apiservice import API_SERVICE
from moorage.apiserver.registry.kinds.binding import BINDING
from moorage.apiserver.registry.kinds.certificatesigningrequest import CERTIFICATE_SIGNING_REQUEST
from moorage.apiserver.registry.kinds.clusterrole import CLUSTER_ROLE
from moorage.apiserver.registry.kinds.clusterrolebinding import CLUSTER_ROLE_BINDING
from moorage.apiserver.registry.kinds.clustertrustbundle import CLUSTER_TRUST_BUNDLE
from moorage.apiserver.registry.kinds.componentstatus import COMPONENT_STATUS
from moorage.apiserver.registry.kinds.configmap import CONFIG_MAP
from moorage.apiserver.registry.kinds.controllerrevision import CONTROLLER_REVISION
from moorage.apiserver.registry.kinds.cronjob import CRON_JOB
from moorage.apiserver.registry.kinds.csidriver import CSI_DRIVER
from moorage.apiserver.registry.kinds.csinode import CSI_NODE
from moorage.apiserver.registry.kinds.csistoragecapacity import CSI_STORAGE_CAPACITY
from moorage.apiserver.registry.kinds.customresourcedefinition import CUSTOM_RESOURCE_DEFINITION
from moorage.apiserver.registry.kinds.daemonset import DAEMON_SET
from moorage.apiserver.registry.kinds.deployment import DEPLOYMENT
from moorage.apiserver.registry.kinds.deviceclass import DEVICE_CLASS
from moorage.apiserver.registry.kinds.devicetaintrule import DEVICE_TAINT_RULE
from moorage.apiserver.registry.kinds.endpoints import ENDPOINTS
from moorage.apiserver.registry.kinds.endpointslice import ENDPOINT_SLICE
from moorage.apiserver.registry.kinds.event import EVENT
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA
from moorage.apiserver.registry.kinds.horizontalpodautoscaler import HORIZONTAL_POD_AUTOSCALER
from moorage.apiserver.registry.kinds.ingress import INGRESS
from moorage.apiserver.registry.kinds.ingressclass import INGRESS_CLASS
from moorage.apiserver.registry.kinds.ipaddress import IP_ADDRESS
from moorage.apiserver.registry.kinds.job import JOB
from moorage.apiserver.registry.kinds.lease import LEASE
from moorage.apiserver.registry.kinds.limitrange import LIMIT_RANGE
from moorage.apiserver.registry.kinds.metrics import METRICS
from moorage.apiserver.registry.kinds.mutatingadmissionpolicy import MUTATING_ADMISSION_POLICY
from moorage.apiserver.registry.kinds.mutatingadmissionpolicybinding import (
    MUTATING_ADMISSION_POLICY_BINDING,
)
from moorage.apiserver.registry.kinds.mutatingwebhookconfiguration import (
    MUTATING_WEBHOOK_CONFIGURATION,
)
from moorage.apiserver.registry.kinds.namespace import NAMESPACE
from moorage.apiserver.registry.kinds.networkpolicy import NETWORK_POLICY
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.kinds.persistentvolume import PERSISTENT_VOLUME
from moorage.apiserver.registry.kinds.persistentvolumeclaim import PERSISTENT_VOLUME_CLAIM
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.kinds.podcertificaterequest import POD_CERTIFICATE_REQUEST
from moorage.apiserver.registry.kinds.poddisruptionbudget import POD_DISRUPTION_BUDGET
from moorage.apiserver.registry.kinds.podtemplate import POD_TEMPLATE
from moorage.apiserver.registry.kinds.priorityclass import PRIORITY_CLASS
from moorage.apiserver.registry.kinds.prioritylevelconfiguration import PRIORITY_LEVEL_CONFIGURATION
from moorage.apiserver.registry.kinds.replicaset import REPLICA_SET
from moorage.apiserver.registry.kinds.replicationcontroller import REPLICATION_CONTROLLER
from moorage.apiserver.registry.kinds.resourceclaim import RESOURCE_CLAIM
from moorage.apiserver.registry.kinds.resourceclaimtemplate import RESOURCE_CLAIM_TEMPLATE
from moorage.apiserver.registry.kinds.resourcequota import RESOURCE_QUOTA
from moorage.apiserver.registry.kinds.resourceslice import RESOURCE_SLICE
from moorage.apiserver.registry.kinds.reviews import REVIEWS
from moorage.apiserver.registry.kinds.role import ROLE
from moorage.apiserver.registry.kinds.rolebinding import ROLE_BINDING
from moorage.apiserver.registry.kinds.runtimeclass import RUNTIME_CLASS
from moorage.apiserver.registry.kinds.secret import SECRET
from moorage.apiserver.registry.kinds.service import SERVICE
from moorage.apiserver.registry.kinds.serviceaccount import SERVICE_ACCOUNT
from moorage.apiserver.registry.kinds.servicecidr import SERVICE_CIDR
from moorage.apiserver.registry.kinds.statefulset import STATEFUL_SET
from moorage.apiserver.registry.kinds.storageclass import STORAGE_CLASS
from moorage.apiserver.registry.kinds.storageversionmigration import STORAGE_VERSION_MIGRATION
from moorage.apiserver.registry.kinds.validatingadmissionpolicy import VALIDATING_ADMISSION_POLICY
from moorage.apiserver.registry.kinds.validatingadmissionpolicybinding import (
    VALIDATING_ADMISSION_POLICY_BINDING,
)
from moorage.apiserver.registry.kinds.validatingwebhookconfiguration import (
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from moorage.apiserver.registry.kinds.volumeattachment import VOLUME_ATTACHMENT
from moorage.apiserver.registry.kinds.volumeattributesclass import VOLUME_ATTRIBUTES_CLASS

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
