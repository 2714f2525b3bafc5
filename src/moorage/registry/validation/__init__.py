"""Which objects are legal: one module a subject, pure functions on canonical objects.

`validate_X(obj)` for a new object, `validate_X_update(new, old)` for a changed one; each gives the
complaints in upstream's order and words.
"""

from moorage.registry.validation.configuration import (
    validate_config_map,
    validate_config_map_update,
    validate_secret,
    validate_secret_update,
)
from moorage.registry.validation.endpoints import (
    validate_endpoint_slice,
    validate_endpoint_slice_update,
    validate_endpoints,
    validate_endpoints_update,
)
from moorage.registry.validation.events import validate_event, validate_event_update
from moorage.registry.validation.leases import validate_lease, validate_lease_update
from moorage.registry.validation.metadata import metadata_errors, metadata_update_errors
from moorage.registry.validation.namespaces import validate_namespace, validate_namespace_update
from moorage.registry.validation.nodes import validate_node, validate_node_update
from moorage.registry.validation.pods import (
    validate_ephemeral_containers_update,
    validate_pod,
    validate_pod_status,
    validate_pod_update,
)
from moorage.registry.validation.priorities import (
    validate_priority_class,
    validate_priority_class_update,
)
from moorage.registry.validation.rbac import (
    validate_cluster_role,
    validate_cluster_role_binding,
    validate_cluster_role_binding_update,
    validate_cluster_role_update,
    validate_role,
    validate_role_binding,
    validate_role_binding_update,
    validate_role_update,
)
from moorage.registry.validation.runtime_classes import (
    validate_runtime_class,
    validate_runtime_class_update,
)
from moorage.registry.validation.services import validate_service, validate_service_update
from moorage.registry.validation.subresources import validate_binding, validate_scale
from moorage.registry.validation.workloads import (
    validate_deployment,
    validate_deployment_status,
    validate_deployment_update,
    validate_replica_set,
    validate_replica_set_status,
    validate_replica_set_update,
)

__all__ = [
    "metadata_errors",
    "metadata_update_errors",
    "validate_binding",
    "validate_cluster_role",
    "validate_cluster_role_binding",
    "validate_cluster_role_binding_update",
    "validate_cluster_role_update",
    "validate_config_map",
    "validate_config_map_update",
    "validate_deployment",
    "validate_deployment_status",
    "validate_deployment_update",
    "validate_endpoint_slice",
    "validate_endpoint_slice_update",
    "validate_endpoints",
    "validate_endpoints_update",
    "validate_ephemeral_containers_update",
    "validate_event",
    "validate_event_update",
    "validate_lease",
    "validate_lease_update",
    "validate_namespace",
    "validate_namespace_update",
    "validate_node",
    "validate_node_update",
    "validate_pod",
    "validate_pod_status",
    "validate_pod_update",
    "validate_priority_class",
    "validate_priority_class_update",
    "validate_replica_set",
    "validate_replica_set_status",
    "validate_replica_set_update",
    "validate_role",
    "validate_role_binding",
    "validate_role_binding_update",
    "validate_role_update",
    "validate_runtime_class",
    "validate_runtime_class_update",
    "validate_scale",
    "validate_secret",
    "validate_secret_update",
    "validate_service",
    "validate_service_update",
]
