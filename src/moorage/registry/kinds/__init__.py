"""Every kind that is served, one declaration each."""

from __future__ import annotations

from moorage.registry.kind import Kind
from moorage.registry.kinds.apps import DEPLOYMENT, REPLICA_SET
from moorage.registry.kinds.coordination import LEASE
from moorage.registry.kinds.core import (
    CONFIG_MAP,
    ENDPOINTS,
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from moorage.registry.kinds.discovery import ENDPOINT_SLICE
from moorage.registry.kinds.events import EVENT
from moorage.registry.kinds.node import RUNTIME_CLASS
from moorage.registry.kinds.rbac import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    ROLE,
    ROLE_BINDING,
)
from moorage.registry.kinds.reviews import REVIEWS
from moorage.registry.kinds.scheduling import PRIORITY_CLASS

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
"""Kinds whose objects are kept."""

ALL_KINDS: tuple[Kind, ...] = (*STORED_KINDS, *REVIEWS)
"""Kinds that are served, questions that are only answered included."""
