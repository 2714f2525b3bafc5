"""IngressClasses. Source: networking defaults and validation of Kubernetes 1.37."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.ingress_classes import IS_DEFAULT
from moorage.apiserver.registry.columns.cells import AGE, NAME, NONE, age_of, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy, get_spec
from moorage.apiserver.registry.validation.object_references import object_reference_errors

_TYPES = "io.k8s.api.networking.v1"
_CLUSTER, _NAMESPACE = "Cluster", "Namespace"
_CONTROLLER_MAX_BYTES = 250
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def default_ingress_class(ingress_class: Obj) -> None:
    """Set the scope of the parameters."""
    parameters = ingress_class.get("spec", {}).get("parameters")
    if parameters is not None:
        parameters.setdefault("scope", _CLUSTER)


def validate_ingress_class(ingress_class: Obj) -> list[FieldError]:
    """Return the errors of a new IngressClass."""
    spec = ingress_class.get("spec", {})
    errors = list(_controller_errors(spec.get("controller", ""), "spec.controller"))
    if "parameters" in spec:
        errors += _parameters_errors(spec["parameters"], "spec.parameters")
    return errors


def validate_ingress_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: the controller is immutable."""
    before, after = (obj.get("spec", {}).get("controller", "") for obj in (old, new))
    errors = validate_ingress_class(new)
    if before != after:
        errors.insert(0, FieldError.invalid("spec.controller", after, "field is immutable"))
    return errors


def _controller_errors(controller: str, path: str) -> Iterator[FieldError]:
    if len(controller.encode()) > _CONTROLLER_MAX_BYTES:
        yield FieldError.too_long(path, _CONTROLLER_MAX_BYTES)
    if not controller:
        yield FieldError.required(path)
        return
    domain, _, http_path = controller.partition("/")
    if not domain or not http_path:
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield FieldError.invalid(path, controller, detail)
        return
    for detail in names.dns_subdomain_errors(domain):
        yield FieldError.invalid(path, domain, detail)
    if not re.fullmatch(_PATH, http_path):
        detail = f"Invalid path (regex used for validation is '{_PATH}')"
        yield FieldError.invalid(path, http_path, detail)


def _parameters_errors(parameters: Obj, path: str) -> Iterator[FieldError]:
    yield from object_reference_errors(parameters, path)
    scope, namespace = parameters.get("scope", ""), parameters.get("namespace")
    if scope not in (_CLUSTER, _NAMESPACE):
        yield FieldError.not_supported(f"{path}.scope", scope, (_CLUSTER, _NAMESPACE))
    elif scope == _CLUSTER:
        if namespace is not None:
            detail = "`parameters.scope` is set to 'Cluster'"
            yield FieldError.forbidden(f"{path}.namespace", detail)
    elif namespace is None:
        detail = "`parameters.scope` is set to 'Namespace'"
        yield FieldError.required(f"{path}.namespace", detail)
    else:
        for detail in names.dns_label_errors(namespace):
            yield FieldError.invalid(f"{path}.namespace", namespace, detail)


def _cells(ingress_class: Obj, now: float) -> list[Any]:
    spec = ingress_class.get("spec", {})
    annotations = ingress_class["metadata"].get("annotations", {})
    mark = " (default)" if annotations.get(IS_DEFAULT) == "true" else ""
    return [
        name_of(ingress_class) + mark,
        spec.get("controller", ""),
        _parameters_text(spec.get("parameters")),
        age_of(ingress_class, now),
    ]


def _parameters_text(parameters: Obj | None) -> str:
    if parameters is None:
        return NONE
    group = f".{parameters['apiGroup']}" if "apiGroup" in parameters else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Controller", description="Controller of the Ingresses of this class"),
        Column("Parameters", description="Object with further parameters of the controller"),
        AGE,
    ),
    cells=_cells,
)

INGRESS_CLASS = Kind(
    name="IngressClass",
    plural="ingressclasses",
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.IngressClass"),),
    is_namespaced=False,
    strategy=Strategy(
        default=default_ingress_class,
        validate=validate_ingress_class,
        validate_update=validate_ingress_class_update,
        spec_of=get_spec,
    ),
    printer=_PRINTER,
)
