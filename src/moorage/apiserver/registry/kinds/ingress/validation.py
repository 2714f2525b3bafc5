"""Validation of ingresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.ingress_classes import CLASS_ANNOTATION
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.ingress.status import NOT_AN_IP
from moorage.apiserver.registry.validation.addresses import parse_ip
from moorage.apiserver.registry.validation.containers import port_number_errors
from moorage.apiserver.registry.validation.object_references import object_reference_errors

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_NOT_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_NOT_AT_THE_END = ("/..", "/.")


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
