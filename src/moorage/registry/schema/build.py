"""Writes the files a server loads: run by the build hook, never by a server."""

from __future__ import annotations

from pathlib import Path

from moorage.registry.schema.compile import compile_types
from moorage.registry.schema.definitions import META, load_definitions

_BY_GROUP = {
    "core.v1": "Pod Node Namespace Event ConfigMap Secret ServiceAccount Service Endpoints Binding",
    "apps.v1": "Deployment ReplicaSet",
    "extensions.v1beta1": "Deployment",
    "node.v1": "RuntimeClass",
    "node.v1beta1": "RuntimeClass",
    "node.v1alpha1": "RuntimeClass",
    "coordination.v1": "Lease",
    "events.v1": "Event",
    "rbac.v1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "scheduling.v1": "PriorityClass",
    "discovery.v1": "EndpointSlice",
    "policy.v1": "Eviction",
    "autoscaling.v1": "Scale",
    "authentication.v1": "TokenRequest TokenReview SelfSubjectReview",
    "authorization.v1": (
        "SubjectAccessReview SelfSubjectAccessReview LocalSubjectAccessReview "
        "SelfSubjectRulesReview"
    ),
}
_ROOTS = (
    *(f"io.k8s.api.{group}.{kind}" for group, kinds in _BY_GROUP.items() for kind in kinds.split()),
    f"{META}.DeleteOptions",
)


def generate_schema(target: Path) -> None:
    """Compile the types of every served kind into `target`."""
    target.mkdir(exist_ok=True)
    bundle = compile_types(load_definitions(), _ROOTS)
    (target / "types.msgpack").write_bytes(bundle)
