"""What the API promises where the user said nothing.

Applied when a body is decoded, before admission. Functions change canonical objects in place.
Source: API reference (field descriptions), `pkg/apis/*/v1/defaults` behaviour of Kubernetes 1.36.
"""

from moorage.registry.defaults.endpoints import default_endpoint_slice, default_endpoints
from moorage.registry.defaults.namespaces import default_namespace
from moorage.registry.defaults.nodes import default_node
from moorage.registry.defaults.pods import default_pod
from moorage.registry.defaults.priorities import default_priority_class
from moorage.registry.defaults.rbac import default_cluster_role_binding, default_role_binding
from moorage.registry.defaults.secrets import default_secret
from moorage.registry.defaults.services import default_service
from moorage.registry.defaults.workloads import (
    default_deployment,
    default_extensions_deployment,
    default_replica_set,
)

__all__ = [
    "default_cluster_role_binding",
    "default_deployment",
    "default_endpoint_slice",
    "default_endpoints",
    "default_extensions_deployment",
    "default_namespace",
    "default_node",
    "default_pod",
    "default_priority_class",
    "default_replica_set",
    "default_role_binding",
    "default_secret",
    "default_service",
]
