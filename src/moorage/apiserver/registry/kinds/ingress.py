"""Ingresses and IngressClasses. Source: networking validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.ingress_classes import CLASS_ANNOTATION, IS_DEFAULT
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, marked_name, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import (
    always,
    follows,
    immutable,
    part,
    required,
    unless_empty,
    update,
    validator,
)
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status
from moorage.apiserver.registry.validation.addresses import ip_errors, parse_ip
from moorage.apiserver.registry.validation.containers import port_number_errors

NOT_AN_IP = "must be a DNS name, not an IP address"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_NOT_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_NOT_AT_THE_END = ("/..", "/.")
_SHOWN_HOSTS = 3
_TYPES = "io.k8s.api.networking.v1"
_CLUSTER, _NAMESPACE = "Cluster", "Namespace"
_CONTROLLER_MAX_BYTES = 250
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_segment = unless_empty(follows(names.path_segment_errors))
object_reference_errors = part(
    ("apiGroup", follows(names.dns_subdomain_errors)),
    ("kind", required, _segment),
    ("name", required, _segment),
)
"""Validate a `TypedLocalObjectReference`."""


def validate_ingress_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of the load balancer's addresses; those that were there are legal."""
    known = {point.get("ip", "") for point in _points(old)}
    errors: list[FieldError] = []
    for index, point in enumerate(_points(new)):
        path = f"status.loadBalancer.ingress[{index}]"
        if point.get("ip"):
            errors += ip_errors(point["ip"], f"{path}.ip", known)
        if hostname := point.get("hostname"):
            at = f"{path}.hostname"
            errors += [
                FieldError.invalid(at, hostname, detail)
                for detail in names.dns_subdomain_errors(hostname)
            ]
            if parse_ip(hostname) is not None:
                errors.append(FieldError.invalid(at, hostname, NOT_AN_IP))
    return errors


def _points(ingress: Obj) -> list[Obj]:
    points: list[Obj] = ingress.get("status", {}).get("loadBalancer", {}).get("ingress", [])
    return points


class _Kept(NamedTuple):
    """Errors that an object had before rules for them existed, and may keep."""

    secret_names: bool = False
    wildcard_rules: bool = False


def validate_ingress(ingress: Obj) -> list[FieldError]:
    """Return the errors of a new Ingress."""
    spec = ingress.get("spec", {})
    errors = list(_spec_errors(spec, _Kept()))
    annotation = ingress["metadata"].get("annotations", {}).get(CLASS_ANNOTATION)
    if annotation is not None and spec.get("ingressClassName", annotation) != annotation:
        detail = "must match `ingressClassName` when both are specified"
        errors.append(FieldError.invalid(f"annotations.{CLASS_ANNOTATION}", annotation, detail))
    return errors


def validate_ingress_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update."""
    before = old.get("spec", {})
    kept = _Kept(
        secret_names=any(any(_secret_errors(tls, "")) for tls in before.get("tls", ())),
        wildcard_rules=any(
            "*" in rule.get("host", "") and any(_http_errors(rule, ""))
            for rule in before.get("rules", ())
        ),
    )
    return list(_spec_errors(new.get("spec", {}), kept))


def warn_about_ingress(new: Obj, old: Obj | None) -> list[str]:
    """Return the warning about a class named by annotation alone."""
    annotations = new["metadata"].get("annotations", {})
    if old is not None or CLASS_ANNOTATION not in annotations:
        return []
    if "ingressClassName" in new.get("spec", {}):
        return []
    return [f'annotation "{CLASS_ANNOTATION}" is deprecated, please use '
            "'spec.ingressClassName' instead"]  # fmt: skip


def _spec_errors(spec: Obj, kept: _Kept) -> Iterator[FieldError]:
    if not spec.get("rules") and "defaultBackend" not in spec:
        detail = "either `defaultBackend` or `rules` must be specified"
        yield FieldError.invalid("spec", spec.get("rules"), detail)
    if "defaultBackend" in spec:
        yield from _backend_errors(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(spec.get("rules", ())):
        path, host = f"spec.rules[{index}]", rule.get("host", "")
        yield from _host_errors(host, f"{path}.host")
        if not ("*" in host and kept.wildcard_rules):
            yield from _http_errors(rule, path)
    for index, tls in enumerate(spec.get("tls", ())):
        path = f"spec.tls[{index}]"
        for number, host in enumerate(tls.get("hosts", ())):
            yield from _name_errors(host, f"{path}.hosts[{number}]")
        if not kept.secret_names:
            yield from _secret_errors(tls, path)
    if "ingressClassName" in spec:
        yield from _details(
            names.dns_subdomain_errors, spec["ingressClassName"], "spec.ingressClassName"
        )


def _host_errors(host: str, path: str) -> Iterator[FieldError]:
    if not host:
        return
    if parse_ip(host) is not None:
        yield FieldError.invalid(path, host, NOT_AN_IP)
    yield from _name_errors(host, path)


def _name_errors(host: str, path: str) -> Iterator[FieldError]:
    check = names.wildcard_subdomain_errors if "*" in host else names.dns_subdomain_errors
    return _details(check, host, path)


def _secret_errors(tls: Obj, path: str) -> Iterator[FieldError]:
    if name := tls.get("secretName"):
        yield from _details(names.dns_subdomain_errors, name, f"{path}.secretName")


def _details(check: Callable[[str], list[str]], value: str, path: str) -> Iterator[FieldError]:
    return (FieldError.invalid(path, value, detail) for detail in check(value))


def _http_errors(rule: Obj, path: str) -> Iterator[FieldError]:
    if "http" not in rule:
        return
    paths = rule["http"].get("paths", ())
    if not paths:
        yield FieldError.required(f"{path}.http.paths")
    for index, http_path in enumerate(paths):
        yield from _path_errors(http_path, f"{path}.http.paths[{index}]")


def _path_errors(http_path: Obj, path: str) -> Iterator[FieldError]:
    type_, value = http_path.get("pathType"), http_path.get("path", "")
    if type_ is None:
        yield FieldError.required(f"{path}.pathType", "pathType must be specified")
        return
    if type_ not in _PATH_TYPES:
        yield FieldError.not_supported(f"{path}.pathType", type_, _PATH_TYPES)
    else:
        is_free = type_ == "ImplementationSpecific"
        if not value.startswith("/") and (value or not is_free):
            yield FieldError.invalid(f"{path}.path", value, "must be an absolute path")
        if not is_free:
            yield from _normal_path_errors(value, f"{path}.path")
    yield from _backend_errors(http_path.get("backend", {}), f"{path}.backend")


def _normal_path_errors(value: str, path: str) -> Iterator[FieldError]:
    for sequence in _NOT_IN_PATHS:
        if sequence in value:
            yield FieldError.invalid(path, value, f"must not contain '{sequence}'")
    for suffix in _NOT_AT_THE_END:
        if value.endswith(suffix):
            yield FieldError.invalid(path, value, f"cannot end with '{suffix}'")


def _backend_errors(backend: Obj, path: str) -> Iterator[FieldError]:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        yield FieldError.invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from object_reference_errors(resource, f"{path}.resource")
    elif service is not None:
        yield from _service_errors(service, path)
    else:
        yield FieldError.invalid(path, "", "resource or service backend is required")


def _service_errors(service: Obj, path: str) -> Iterator[FieldError]:
    if name := service.get("name"):
        yield from _details(names.dns_label_errors, name, f"{path}.service.name")
    else:
        yield FieldError.required(f"{path}.service.name")
    port = service.get("port", {})
    port_name, number = port.get("name", ""), port.get("number", 0)
    at = f"{path}.service.port"
    if port_name and number:
        yield FieldError.invalid(path, "", "cannot set both port name & port number")
    elif port_name:
        yield from _details(names.port_name_errors, port_name, f"{at}.name")
    elif number:
        yield from port_number_errors(number, f"{at}.number")
    else:
        yield FieldError.required(path, "port name or number is required")


def _hosts(rules: list[Obj]) -> str:
    """Return the first hosts. A rule after the third host is counted even if it has no host."""
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == _SHOWN_HOSTS:
            return f"{','.join(hosts)} + {len(rules) - _SHOWN_HOSTS} more..."
        if rule.get("host"):
            hosts.append(rule["host"])
    return ",".join(hosts) or "*"


def _addresses(load_balancer: Obj) -> str:
    points = load_balancer.get("ingress", ())
    return ",".join(sorted({p.get("ip") or p.get("hostname") or "" for p in points} - {""}))


PRINTER = printer(
    NAME,
    column("Class", "spec.ingressClassName", absent=NONE, description="Name of the IngressClass"),
    column("Hosts", "spec.rules", absent="*", show=_hosts, description="Hosts of the rules"),
    column(
        "Address",
        "status.loadBalancer",
        show=_addresses,
        description="Addresses of the load balancer",
    ),
    column(
        "Ports",
        "spec.tls",
        absent="80",
        show=lambda tls: "80, 443" if tls else "80",
        description="Ports that are open: 443 too with TLS",
    ),
    AGE,
)

INGRESS = Kind(
    name="Ingress",
    plural="ingresses",
    served=(Served("networking.k8s.io", "v1", f"{_TYPES}.Ingress"),),
    short_names=("ing",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_ingress,
        validate_update=validate_ingress_update,
        warn=warn_about_ingress,
        parts={"status": PartRules(prepare=keep_spec, validate=validate_ingress_status)},
        spec_of=get_spec,
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)


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
    served=(Served("networking.k8s.io", "v1", f"{_TYPES}.IngressClass"),),
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
