"""API definitions as published, plus API versions that the publication does not have.

Runs at build time only. The source is the `kubernetes-validate` package,
whose JSON Schema marks nullable fields with type lists; this converts it back to OpenAPI.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any

from moorage.api.release import KUBERNETES

META = "io.k8s.apimachinery.pkg.apis.meta.v1"

Definition = dict[str, Any]


def load_definitions() -> dict[str, Definition]:
    """Return every definition by full name, including older API versions."""
    source = resources.files("kubernetes_validate").joinpath(
        f"kubernetes-json-schema/v{KUBERNETES}-local/_definitions.json"
    )
    published = json.loads(source.read_text())["$defs"]
    definitions = {name: _plain(definition) for name, definition in published.items()}
    for add in (
        _add_node_v1beta1,
        _add_node_v1alpha1,
        _add_extensions_v1beta1,
        _add_metrics_v1beta1,
    ):
        add(definitions)
    return definitions


def reachable(definitions: dict[str, Definition], roots: Iterable[str]) -> list[str]:
    """Return the names of the roots and of all their references, sorted."""
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += references(definitions[name])
    return sorted(reached)


def references(node: Any) -> list[str]:
    """Return the names that a schema node refers to."""
    if isinstance(node, list):
        return [name for item in node for name in references(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"].rsplit("/", 1)[-1]] if isinstance(node.get("$ref"), str) else []
    return own + [name for value in node.values() for name in references(value)]


_SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "type": "string",
        "format": "int-or-string",
    },
}


def _plain(node: Any) -> Any:
    """Convert to OpenAPI v2: no null in type lists, no enum on kind, `definitions` references."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain: Definition = {}
    for key, value in node.items():
        if key == "$ref":
            plain[key] = "#/definitions/" + value.rsplit("/", 1)[-1]
        elif key == "type" and isinstance(value, list):
            plain[key] = next(item for item in value if item != "null")
        elif key == "oneOf":
            alternatives = [_plain(item)["type"] for item in value]
            plain["type"] = "string"
            if "integer" in alternatives:
                plain["format"] = "int-or-string"
        elif key == "properties":
            plain[key] = {name: _plain(schema) for name, schema in value.items()}
        elif key != "enum":
            plain[key] = _plain(value)
    return plain


def _renamed(definition: Definition, old: str, new: str) -> Definition:
    """Return a copy in another group-version, with references and group-version-kind changed."""
    text = json.dumps(definition).replace(f"#/definitions/{old}.", f"#/definitions/{new}.")
    copied: Definition = json.loads(text)
    return copied


def _group_version_kind(group: str, version: str, kind: str) -> list[dict[str, str]]:
    return [{"group": group, "kind": kind, "version": version}]


def _copy_version(
    definitions: dict[str, Definition], old: str, new: str, names: Iterable[str], group: str
) -> None:
    for name in names:
        copied = _renamed(definitions[f"{old}.{name}"], old, new)
        if "x-kubernetes-group-version-kind" in copied:
            version = new.rsplit(".", 1)[-1]
            copied["x-kubernetes-group-version-kind"] = _group_version_kind(group, version, name)
        definitions[f"{new}.{name}"] = copied


_NODE = "io.k8s.api.node"
_NODE_NAMES = ("RuntimeClass", "RuntimeClassList", "Overhead", "Scheduling")


def _add_node_v1beta1(definitions: dict[str, Definition]) -> None:
    _copy_version(definitions, f"{_NODE}.v1", f"{_NODE}.v1beta1", _NODE_NAMES, "node.k8s.io")


def _add_node_v1alpha1(definitions: dict[str, Definition]) -> None:
    """Add v1alpha1: as v1, with all but metadata under `spec` and the handler renamed."""
    new = f"{_NODE}.v1alpha1"
    _copy_version(definitions, f"{_NODE}.v1", new, _NODE_NAMES, "node.k8s.io")
    runtime_class = definitions[f"{new}.RuntimeClass"]
    properties = runtime_class["properties"]
    definitions[f"{new}.RuntimeClassSpec"] = {
        "description": (
            "RuntimeClassSpec is a specification of a RuntimeClass: the handler, and what running "
            "under it costs and requires."
        ),
        "properties": {
            "runtimeHandler": properties.pop("handler"),
            "overhead": properties.pop("overhead"),
            "scheduling": properties.pop("scheduling"),
        },
        "required": ["runtimeHandler"],
        "type": "object",
    }
    properties["spec"] = {
        "$ref": f"#/definitions/{new}.RuntimeClassSpec",
        "description": "spec represents specification of the RuntimeClass",
    }
    runtime_class["required"] = ["spec"]


_APPS = "io.k8s.api.apps.v1"
_EXTENSIONS = "io.k8s.api.extensions.v1beta1"
_DEPLOYMENT_NAMES = (
    "Deployment", "DeploymentList", "DeploymentSpec", "DeploymentStatus", "DeploymentStrategy",
    "DeploymentCondition", "RollingUpdateDeployment",
)  # fmt: skip


def _add_extensions_v1beta1(definitions: dict[str, Definition]) -> None:
    """Add the first version of Deployments: selector optional, `rollbackTo` supported."""
    _copy_version(definitions, _APPS, _EXTENSIONS, _DEPLOYMENT_NAMES, "extensions")
    definitions[f"{_EXTENSIONS}.RollbackConfig"] = {
        "description": "DEPRECATED.",
        "properties": {
            "revision": {
                "description": "The revision to roll back to; 0 is the last one.",
                "format": "int64",
                "type": "integer",
            }
        },
        "type": "object",
    }
    spec = definitions[f"{_EXTENSIONS}.DeploymentSpec"]
    spec["required"] = ["template"]
    spec["properties"]["rollbackTo"] = {
        "$ref": f"#/definitions/{_EXTENSIONS}.RollbackConfig",
        "description": "DEPRECATED. The revision this deployment shall go back to.",
    }


def copied(definitions: dict[str, Definition], name: str) -> Definition:
    """Return a deep copy of a definition, which may be changed."""
    return copy.deepcopy(definitions[name])


_METRICS = "io.k8s.metrics.pkg.apis.metrics.v1beta1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"


def _text(description: str) -> Definition:
    return {"description": description, "type": "string"}


def _reference(name: str, description: str) -> Definition:
    return {"description": description, "$ref": f"#/definitions/{name}"}


def _add_metrics_v1beta1(definitions: dict[str, Definition]) -> None:
    """Add metrics.k8s.io/v1beta1, which metrics-server publishes."""
    usage = {
        "description": "What was used: CPU on average over the window, memory at its end.",
        "type": "object",
        "additionalProperties": {"$ref": f"#/definitions/{_QUANTITY}"},
    }
    window = {
        "timestamp": _reference(f"{META}.Time", "When the window ended."),
        "window": _text("How long usage was measured, as a duration such as 15.2s."),
    }
    containers = {
        "description": "The usage of each container of the pod.",
        "type": "array",
        "items": {"$ref": f"#/definitions/{_METRICS}.ContainerMetrics"},
    }
    definitions[f"{_METRICS}.ContainerMetrics"] = {
        "description": "ContainerMetrics is the resource usage of a container.",
        "properties": {"name": _text("The container's name."), "usage": usage},
        "required": ["name", "usage"],
        "type": "object",
    }
    for name, described, own in (
        ("NodeMetrics", "a node", {"usage": usage}),
        ("PodMetrics", "a pod", {"containers": containers}),
    ):
        definitions[f"{_METRICS}.{name}"] = {
            "description": f"{name} is the resource usage of {described}.",
            "properties": {
                **_type_meta(),
                "metadata": _reference(f"{META}.ObjectMeta", "Standard object's metadata."),
                **window,
                **own,
            },
            "required": ["timestamp", "window", *own],
            "type": "object",
            "x-kubernetes-group-version-kind": _group_version_kind(
                "metrics.k8s.io", "v1beta1", name
            ),
        }
        definitions[f"{_METRICS}.{name}List"] = {
            "description": f"{name}List is a list of {name}.",
            "properties": {
                **_type_meta(),
                "metadata": _reference(f"{META}.ListMeta", "Standard list metadata."),
                "items": {
                    "description": f"List of {name}.",
                    "type": "array",
                    "items": {"$ref": f"#/definitions/{_METRICS}.{name}"},
                },
            },
            "required": ["items"],
            "type": "object",
            "x-kubernetes-group-version-kind": _group_version_kind(
                "metrics.k8s.io", "v1beta1", f"{name}List"
            ),
        }


def _type_meta() -> Definition:
    return {
        "apiVersion": _text("The version of this representation of the object."),
        "kind": _text("The kind of object that this is."),
    }
