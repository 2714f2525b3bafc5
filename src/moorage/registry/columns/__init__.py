"""How objects are shown in a Table: one printer a kind, as `kubectl get` knows it.

    printer + objects ──table──▶ Table JSON

Source: API docs "Receiving resources as Tables"; names, types, priorities and descriptions of the
columns are those that Kubernetes 1.36 sends.
"""

from moorage.registry.columns.apps import DEPLOYMENTS, REPLICA_SETS
from moorage.registry.columns.cells import CREATED_AT
from moorage.registry.columns.configuration import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS
from moorage.registry.columns.coordination import LEASES
from moorage.registry.columns.discovery import ENDPOINT_SLICES
from moorage.registry.columns.events import EVENTS
from moorage.registry.columns.namespaces import NAMESPACES
from moorage.registry.columns.nodes import NODES
from moorage.registry.columns.pods import PODS
from moorage.registry.columns.rbac import CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS
from moorage.registry.columns.runtime_classes import RUNTIME_CLASSES
from moorage.registry.columns.scheduling import PRIORITY_CLASSES
from moorage.registry.columns.services import ENDPOINTS, SERVICES

__all__ = [
    "CLUSTER_ROLE_BINDINGS",
    "CONFIG_MAPS",
    "CREATED_AT",
    "DEPLOYMENTS",
    "ENDPOINTS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PODS",
    "PRIORITY_CLASSES",
    "REPLICA_SETS",
    "ROLE_BINDINGS",
    "RUNTIME_CLASSES",
    "SECRETS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
]
