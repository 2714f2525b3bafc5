"""Every kind that is served, one module each. The order is that of discovery."""

from __future__ import annotations

from moorage.registry.kind import Kind
from moorage.registry.kinds.clusterrole import CLUSTER_ROLE
from moorage.registry.kinds.clusterrolebinding import CLUSTER_ROLE_BINDING
from moorage.registry.kinds.configmap import CONFIG_MAP
from moorage.registry.kinds.deployment import DEPLOYMENT
from moorage.registry.kinds.endpoints import ENDPOINTS
from moorage.registry.kinds.endpointslice import ENDPOINT_SLICE
from moorage.registry.kinds.event import EVENT
from moorage.registry.kinds.lease import LEASE
from moorage.registry.kinds.namespace import NAMESPACE
from moorage.registry.kinds.node import NODE
from moorage.registry.kinds.pod import POD
from moorage.registry.kinds.priorityclass import PRIORITY_CLASS
from moorage.registry.kinds.replicaset import REPLICA_SET
from moorage.registry.kinds.reviews import REVIEWS
from moorage.registry.kinds.role import ROLE
from moorage.registry.kinds.rolebinding import ROLE_BINDING
from moorage.registry.kinds.runtimeclass import RUNTIME_CLASS
from moorage.registry.kinds.secret import SECRET
from moorage.registry.kinds.service import SERVICE
from moorage.registry.kinds.serviceaccount import SERVICE_ACCOUNT

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
)
"""Kinds whose objects are stored."""

ALL_KINDS: tuple[Kind, ...] = (*STORED_KINDS, *REVIEWS)
"""Kinds that are served, including reviews, whose objects are not stored."""
