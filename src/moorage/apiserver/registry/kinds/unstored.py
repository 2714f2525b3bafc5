"""Kinds whose objects are answered and not stored: reviews, usage, Bindings, ComponentStatuses."""

from __future__ import annotations

from typing import Any

from moorage.api import quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NAME, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_TYPES = "io.k8s.metrics.pkg.apis.metrics.v1beta1"
_RESOURCES = ("cpu", "memory")
_AUTHENTICATION = ("authentication.k8s.io", "io.k8s.api.authentication.v1")
_AUTHORIZATION = ("authorization.k8s.io", "io.k8s.api.authorization.v1")


def validate_binding(binding: Obj) -> list[FieldError]:
    """Validate a core/v1 `Binding`: its target must be a node."""
    target = binding.get("target", {})
    errors: list[FieldError] = []
    if target.get("kind", "") not in ("", "Node"):
        errors.append(FieldError.not_supported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(FieldError.required("target.name"))
    return errors


def validate_scale(scale: Obj) -> list[FieldError]:
    """Validate an autoscaling/v1 `Scale`: replicas must not be negative."""
    replicas = scale.get("spec", {}).get("replicas", 0)
    if replicas >= 0:
        return []
    return [FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0")]


BINDING = Kind(
    name="Binding",
    plural="bindings",
    served=(Served("", "v1", "io.k8s.api.core.v1.Binding"),),
    verbs=("create",),
    is_stored=False,
)


def _health_cells(component: Obj, now: float) -> list[Any]:
    del now
    for condition in component.get("conditions", ()):
        if condition["type"] == "Healthy":
            status = "Healthy" if condition["status"] == "True" else "Unhealthy"
            texts = [condition.get("message", ""), condition.get("error", "")]
            return [name_of(component), status, *texts]
    return [name_of(component), "Unknown", "", ""]


COMPONENT_STATUS = Kind(
    name="ComponentStatus",
    plural="componentstatuses",
    served=(
        Served(
            "",
            "v1",
            "io.k8s.api.core.v1.ComponentStatus",
            warning="v1 ComponentStatus is deprecated in v1.19+",
        ),
    ),
    is_namespaced=False,
    short_names=("cs",),
    verbs=("get", "list"),
    printer=Printer(
        columns=(
            NAME,
            Column("Status", description="Status of the component conditions"),
            Column("Message", description="Message of the component conditions"),
            Column("Error", description="Error of the component conditions"),
        ),
        cells=_health_cells,
    ),
    is_stored=False,
)


def _node_cells(metrics: Obj, now: float) -> list[Any]:
    del now
    return _usage_cells(metrics, [metrics.get("usage", {})])


def _pod_cells(metrics: Obj, now: float) -> list[Any]:
    del now
    return _usage_cells(
        metrics, [container["usage"] for container in metrics.get("containers", ())]
    )


def _usage_cells(metrics: Obj, usages: list[dict[str, str]]) -> list[Any]:
    total = quantity.to_texts(quantity.add_resources(*usages))
    used = [total.get(resource, "0") for resource in _RESOURCES]
    return [name_of(metrics), *used, metrics.get("window", "0s")]


def _columns() -> tuple[Column, ...]:
    return (
        Column("Name", format="name", description="Name of the resource"),
        *(Column(resource, format="quantity") for resource in _RESOURCES),
        Column("Window", format="duration"),
    )


def _kind(name: str, plural: str, printer: Printer, *, is_namespaced: bool) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        served=(Served(GROUP, VERSION, f"{_TYPES}.{name}"),),
        is_namespaced=is_namespaced,
        verbs=("get", "list"),
        printer=printer,
        is_stored=False,
    )


NODE_METRICS = _kind("NodeMetrics", "nodes", Printer(_columns(), _node_cells), is_namespaced=False)
POD_METRICS = _kind("PodMetrics", "pods", Printer(_columns(), _pod_cells), is_namespaced=True)
METRICS: tuple[Kind, ...] = (NODE_METRICS, POD_METRICS)


def _review(home: tuple[str, str], name: str, *, is_namespaced: bool = False) -> Kind:
    group, types = home
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        served=(Served(group, "v1", f"{types}.{name}"),),
        is_namespaced=is_namespaced,
        verbs=("create",),
        is_stored=False,
    )


TOKEN_REVIEW = _review(_AUTHENTICATION, "TokenReview")
SELF_SUBJECT_REVIEW = _review(_AUTHENTICATION, "SelfSubjectReview")
SUBJECT_ACCESS_REVIEW = _review(_AUTHORIZATION, "SubjectAccessReview")
SELF_SUBJECT_ACCESS_REVIEW = _review(_AUTHORIZATION, "SelfSubjectAccessReview")

LOCAL_SUBJECT_ACCESS_REVIEW = _review(
    _AUTHORIZATION, "LocalSubjectAccessReview", is_namespaced=True
)

SELF_SUBJECT_RULES_REVIEW = _review(_AUTHORIZATION, "SelfSubjectRulesReview")

REVIEWS: tuple[Kind, ...] = (
    TOKEN_REVIEW,
    SELF_SUBJECT_REVIEW,
    SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
)
