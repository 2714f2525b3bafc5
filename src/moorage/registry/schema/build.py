"""Writes the files a server loads: run by the build hook, never by a server."""

from __future__ import annotations

from pathlib import Path

from moorage.registry.schema.compile import compile_types
from moorage.registry.schema.definitions import load_definitions

_CORE = ("Pod", "Node", "Namespace", "Event", "ConfigMap", "Secret", "ServiceAccount", "Service",
         "Endpoints", "Binding")  # fmt: skip
_ROOTS = (
    *(f"io.k8s.api.core.v1.{kind}" for kind in _CORE),
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.ReplicaSet",
    "io.k8s.api.extensions.v1beta1.Deployment",
    "io.k8s.api.node.v1.RuntimeClass",
    "io.k8s.api.node.v1beta1.RuntimeClass",
    "io.k8s.api.node.v1alpha1.RuntimeClass",
    "io.k8s.api.coordination.v1.Lease",
)


def generate_schema(target: Path) -> None:
    """Compile the types of every served kind into `target`."""
    target.mkdir(exist_ok=True)
    bundle = compile_types(load_definitions(), _ROOTS)
    (target / "types.msgpack").write_bytes(bundle)
