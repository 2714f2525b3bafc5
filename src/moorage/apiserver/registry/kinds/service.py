"""Services."""

from __future__ import annotations

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CORE, NONE, UNKNOWN, joined, label_text
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer, selector_column
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    proxy_subresource,
    status_subresource,
)
from moorage.apiserver.registry.preparation import keep_spec, keep_status
from moorage.apiserver.registry.validation.addresses import ip_errors
from moorage.apiserver.registry.validation.containers import port_number_errors
from moorage.apiserver.registry.validation.go_shapes import SERVICE_PORT, go_struct
from moorage.apiserver.registry.validation.metadata import label_errors
from moorage.apiserver.registry.validation.probes import port_reference_errors

_AFFINITY_SECONDS = 10800
_EXTERNAL = ("NodePort", "LoadBalancer")
_BALANCED = "LoadBalancer"
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC_POLICIES = ("Cluster", "Local")
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
_MAX_AFFINITY_SECONDS = 86400
_PENDING = "<pending>"
_SPEC = f"{CORE}.ServiceSpec"


def default_service(service: Obj) -> None:
    """Set the API defaults of a Service."""
    spec = service.setdefault("spec", {})
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        client_ip = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client_ip.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if kind in _EXTERNAL:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    service.setdefault("status", {}).setdefault("loadBalancer", {})


def prepare_service_create(service: Obj) -> None:
    """Reset the fields of a new Service that clients may not set."""
    service["status"] = {"loadBalancer": {}}


def prepare_service_update(new: Obj, old: Obj) -> None:
    """Keep the status, and drop fields that the Service's type does not have any more."""
    keep_status(new, old)
    spec, was = new["spec"], old["spec"]
    if _has_addresses(was) and not _has_addresses(spec):
        _drop_unchanged(spec, was, "ipFamilies", "ipFamilyPolicy")
    if _is_health_checked(was) and not _is_health_checked(spec):
        _drop_unchanged(spec, was, "healthCheckNodePort")
    if _is_balanced(was) and not _is_balanced(spec):
        _drop_unchanged(spec, was, "allocateLoadBalancerNodePorts", "loadBalancerClass")
    if is_externally_accessible(was) and not is_externally_accessible(spec):
        _drop_unchanged(spec, was, "externalTrafficPolicy")
    if not _is_balanced(spec):
        new["status"] = {**new.get("status", {}), "loadBalancer": {}}


def _drop_unchanged(spec: Obj, was: Obj, *fields: str) -> None:
    for field in fields:
        if spec.get(field) == was.get(field):
            spec.pop(field, None)


def _has_addresses(spec: Obj) -> bool:
    return bool(spec.get("type") != "ExternalName")


def _is_balanced(spec: Obj) -> bool:
    return bool(spec.get("type") == _BALANCED)


def _is_health_checked(spec: Obj) -> bool:
    return _is_balanced(spec) and spec.get("externalTrafficPolicy") == "Local"


def is_externally_accessible(spec: Obj) -> bool:
    """Return whether a Service can be reached from outside the cluster."""
    if spec.get("type") in (_BALANCED, "NodePort"):
        return True
    return spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))


def validate_service(service: Obj) -> list[FieldError]:
    """Return the errors of a new Service."""
    spec = service["spec"]
    kind = spec.get("type", "")
    is_headless = spec.get("clusterIP") == "None"
    errors: list[FieldError] = []
    if not spec.get("ports") and not is_headless and kind != "ExternalName":
        errors.append(FieldError.required("spec.ports"))
    if kind == "ExternalName":
        errors += _external_name_errors(spec)
    elif kind == "LoadBalancer" and is_headless:
        errors.append(
            FieldError.invalid(
                "spec.clusterIPs[0]", "None", "may not be set to 'None' for LoadBalancer services"
            )
        )
    elif kind == "NodePort" and is_headless:
        errors.append(
            FieldError.invalid(
                "spec.clusterIPs[0]", "None", "may not be set to 'None' for NodePort services"
            )
        )
    seen: set[str] = set()
    ports = spec.get("ports", [])
    for index, port in enumerate(ports):
        errors += _port_errors(port, f"spec.ports[{index}]", len(ports) > 1, seen)
    errors += label_errors(spec.get("selector", {}), "spec.selector")
    errors += _choice(spec.get("sessionAffinity", ""), "spec.sessionAffinity", _AFFINITIES)
    errors += _affinity_errors(spec)
    errors += _choice(kind, "spec.type", _TYPES)
    errors += _cluster_ip_errors(spec)
    errors += _node_port_errors(spec)
    errors += _duplicate_port_errors(ports)
    if "ipFamilyPolicy" in spec:
        errors += _choice(spec["ipFamilyPolicy"], "spec.ipFamilyPolicy", _FAMILY_POLICIES)
    for index, address in enumerate(spec.get("externalIPs", ())):
        errors += ip_errors(address, f"spec.externalIPs[{index}]")
    for field in ("externalTrafficPolicy", "internalTrafficPolicy"):
        if field in spec:
            errors += _choice(spec[field], f"spec.{field}", _TRAFFIC_POLICIES)
    if "externalTrafficPolicy" in spec and not is_externally_accessible(spec):
        errors.append(
            FieldError.invalid(
                "spec.externalTrafficPolicy",
                spec["externalTrafficPolicy"],
                "may only be set for externally-accessible services",
            )
        )
    return errors


def validate_service_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: the cluster IP is immutable."""
    errors: list[FieldError] = []
    spec, was = new["spec"], old["spec"]
    if spec.get("type") != "ExternalName" and was.get("type") != "ExternalName":
        before, after = was.get("clusterIPs", []), spec.get("clusterIPs", [])
        if before and after and before[0] != after[0]:
            errors.append(
                FieldError.invalid("spec.clusterIPs[0]", after, "may not change once set")
            )
    return errors + validate_service(new)


def _choice(value: str, path: str, allowed: tuple[str, ...]) -> list[FieldError]:
    if value in allowed:
        return []
    if not value:
        return [FieldError.required(path)]
    return [FieldError.not_supported(path, value, allowed)]


def _external_name_errors(spec: Obj) -> list[FieldError]:
    name = spec.get("externalName", "").rstrip(".")
    if not name:
        return [FieldError.required("spec.externalName")]
    return [
        FieldError.invalid("spec.externalName", spec["externalName"], detail)
        for detail in names.dns_subdomain_errors(name)
    ]


def _port_errors(port: Obj, path: str, needs_name: bool, seen: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    name = port.get("name", "")
    if needs_name and not name:
        errors.append(FieldError.required(f"{path}.name"))
    elif name:
        errors += [
            FieldError.invalid(f"{path}.name", name, e) for e in names.dns_label_errors(name)
        ]
        if name in seen:
            errors.append(FieldError.duplicate(f"{path}.name", name))
        seen.add(name)
    errors += port_number_errors(port.get("port", 0), f"{path}.port")
    errors += _choice(port.get("protocol", ""), f"{path}.protocol", _PROTOCOLS)
    errors += port_reference_errors(port.get("targetPort", 0), f"{path}.targetPort")
    return errors


def _affinity_errors(spec: Obj) -> list[FieldError]:
    config = spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    if spec.get("sessionAffinity") == "ClientIP":
        seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
        if seconds is None:
            return [FieldError.required(path, "when session affinity type is ClientIP")]
        if not 0 < seconds <= _MAX_AFFINITY_SECONDS:
            return [
                FieldError.invalid(
                    f"{path}.clientIP.timeoutSeconds",
                    seconds,
                    f"must be greater than 0 and less than {_MAX_AFFINITY_SECONDS}",
                )
            ]
    elif config is not None:
        return [FieldError.forbidden(path, "must not be set when session affinity is None")]
    return []


def _cluster_ip_errors(spec: Obj) -> list[FieldError]:
    if spec.get("type") == "ExternalName":
        return [
            FieldError.forbidden(f"spec.{field}", "may not be set for ExternalName services")
            for field in ("clusterIPs",)
            if spec.get(field)
        ]
    errors: list[FieldError] = []
    addresses = spec.get("clusterIPs", [])
    primary = spec.get("clusterIP", "")
    if addresses and primary != addresses[0]:
        errors.append(
            FieldError.invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
        )
    for index, address in enumerate(addresses):
        if address != "None":
            errors += ip_errors(address, f"spec.clusterIPs[{index}]")
    return errors


def _node_port_errors(spec: Obj) -> list[FieldError]:
    if spec.get("type") in _WITH_NODE_PORTS:
        return []
    return [
        FieldError.forbidden(
            f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'"
        )
        for index, port in enumerate(spec.get("ports", ()))
        if port.get("nodePort")
    ]


def _duplicate_port_errors(ports: list[Obj]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol", ""), port.get("port", 0))
        if key in seen:
            shown = {"protocol": key[0], "port": key[1]}
            errors.append(
                FieldError.duplicate(f"spec.ports[{index}]", go_struct(shown, SERVICE_PORT))
            )
        seen.add(key)
    return errors


def _external_addresses(service: Obj) -> str:
    spec = service.get("spec", {})
    own = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return joined(own)
        case "LoadBalancer":
            ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
            given = {
                ingress_point.get("ip") or ingress_point.get("hostname") or ""
                for ingress_point in ingress
            } - {""}
            return ",".join([*sorted(given), *own]) or _PENDING
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case _:
            return UNKNOWN


def _ports_text(ports: list[Obj]) -> str:
    return joined(_port_text(port) for port in ports)


def _port_text(port: Obj) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port', 0)}{node_port}/{port.get('protocol', '')}"


PRINTER = printer(
    NAME,
    column("Type", "spec.type", of=_SPEC),
    column(
        "Cluster-IP",
        "spec.clusterIPs",
        absent=NONE,
        show=lambda addresses: addresses[0] if addresses else NONE,
        documented_by=f"{_SPEC}.clusterIP",
    ),
    column("External-IP", _external_addresses, documented_by=f"{_SPEC}.externalIPs"),
    column("Port(s)", "spec.ports", of=_SPEC, absent=NONE, show=_ports_text),
    AGE,
    selector_column(_SPEC, label_text),
)


def warn_service(service: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about addresses and ignored fields."""
    del old
    spec = service["spec"]
    warnings: list[str] = []
    if spec.get("loadBalancerIP"):
        warnings.append("spec.loadBalancerIP is deprecated")
    if spec.get("clusterIP") == "None":
        if spec.get("loadBalancerIP"):
            warnings.append("spec.loadBalancerIP is ignored for headless services")
        if spec.get("externalIPs"):
            warnings.append('spec.externalIPs is ignored when spec.clusterIP is "None"')
        if spec.get("sessionAffinity") != "None":
            warnings.append("spec.SessionAffinity is ignored for headless services")
    return warnings


SERVICE = Kind(
    name="Service",
    plural="services",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.Service"),),
    short_names=("svc",),
    categories=("all",),
    strategy=Strategy(
        default=default_service,
        prepare_create=prepare_service_create,
        prepare_update=prepare_service_update,
        validate=validate_service,
        validate_update=validate_service_update,
        parts={"status": PartRules(keep_spec)},
        warn=warn_service,
        name_errors=names.dns_label_errors,
        may_create_on_update=True,
        returns_deleted=True,
    ),
    printer=PRINTER,
    selectable=(
        SelectableField("spec.clusterIP", ("spec", "clusterIP")),
        SelectableField("spec.type", ("spec", "type")),
    ),
    subresources={**proxy_subresource("ServiceProxyOptions"), **status_subresource()},
)
