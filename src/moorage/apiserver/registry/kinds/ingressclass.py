"""IngressClasses. Source: networking defaults and validation of Kubernetes 1.36."""

from __future__ import annotations

import re
from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.ingress_classes import IS_DEFAULT
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, column, marked_name, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import always, immutable, update, validator
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy, get_spec
from moorage.apiserver.registry.validation.object_references import object_reference_errors

_TYPES = "io.k8s.api.networking.v1"
_CLUSTER, _NAMESPACE = "Cluster", "Namespace"
_CONTROLLER_MAX_BYTES = 250
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def _controller_errors(controller: str | None, path: str) -> Iterator[FieldError]:
    controller = controller or ""
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


def _is_default(ingress_class: Obj) -> bool:
    return bool(ingress_class["metadata"].get("annotations", {}).get(IS_DEFAULT) == "true")


def _parameters_text(parameters: Obj) -> str:
    group = f".{parameters['apiGroup']}" if "apiGroup" in parameters else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


validate_ingress_class = validator(
    ("spec.controller", always(_controller_errors)),
    ("spec.parameters", _parameters_errors),
)

INGRESS_CLASS = Kind(
    name="IngressClass",
    plural="ingressclasses",
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.IngressClass"),),
    is_namespaced=False,
    strategy=Strategy(
        default=defaults(("spec?.parameters?.scope", _CLUSTER)),
        validate=validate_ingress_class,
        validate_update=update(
            validate_ingress_class, before=immutable("spec.controller", absent="")
        ),
        spec_of=get_spec,
    ),
    printer=printer(
        marked_name(_is_default),
        column(
            "Controller",
            "spec.controller",
            description="Controller of the Ingresses of this class",
        ),
        column(
            "Parameters",
            "spec.parameters",
            absent=NONE,
            show=_parameters_text,
            description="Object with further parameters of the controller",
        ),
        AGE,
    ),
)
