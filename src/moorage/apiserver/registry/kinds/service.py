"""Services."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CORE, NONE, UNKNOWN, joined, label_text
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer, selector_column
from moorage.apiserver.registry.declare.rules import (
    Row,
    Unique,
    follows,
    forbidden,
    invalid,
    or_else,
    part,
    required,
    required_one_of,
    unique_unless_empty,
    unless_empty,
    update,
    validator,
    when,
    without_path,
)
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
from moorage.apiserver.registry.validation.addresses import endpoint_address_errors, ip_errors
from moorage.apiserver.registry.validation.containers import port_number_errors
from moorage.apiserver.registry.validation.go_shapes import SERVICE_PORT, go_struct
from moorage.apiserver.registry.validation.metadata import label_errors
from moorage.apiserver.registry.validation.probes import port_reference_errors

_AFFINITY_SECONDS = 10800
_EXTERNAL = ("NodePort", "LoadBalancer")
_BALANCED = "LoadBalancer"
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
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
    elif spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
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
    if was.get("type") in _EXTERNAL and spec.get("type") not in _EXTERNAL:
        _drop_unchanged_node_ports(spec, was)
    if _is_health_checked(was) and not _is_health_checked(spec):
        _drop_unchanged(spec, was, "healthCheckNodePort")
    if _is_balanced(was) and not _is_balanced(spec):
        _drop_unchanged(spec, was, "allocateLoadBalancerNodePorts", "loadBalancerClass")
    if _is_unreachable(spec) and not _is_unreachable(was):
        _drop_unchanged(spec, was, "externalTrafficPolicy")
    if not _is_balanced(spec):
        new["status"] = {**new.get("status", {}), "loadBalancer": {}}


def _drop_unchanged(spec: Obj, was: Obj, *fields: str) -> None:
    for field in fields:
        if spec.get(field) == was.get(field):
            spec.pop(field, None)


def _drop_unchanged_node_ports(spec: Obj, was: Obj) -> None:
    ports, before = spec.get("ports", ()), was.get("ports", ())
    if {port.get("nodePort") for port in ports} == {port.get("nodePort") for port in before}:
        for port in ports:
            port.pop("nodePort", None)


def _has_addresses(spec: Obj) -> bool:
    return bool(spec.get("type") != "ExternalName")


def _is_balanced(spec: Obj) -> bool:
    return bool(spec.get("type") == _BALANCED)


def _is_health_checked(spec: Obj) -> bool:
    return _is_balanced(spec) and spec.get("externalTrafficPolicy") == "Local"


def _is_unreachable(spec: Obj) -> bool:
    """Return whether a Service cannot be reached from outside the cluster."""
    has_address = spec.get("type") == "ClusterIP" and spec.get("externalIPs")
    return not has_address and spec.get("type") not in _EXTERNAL


def _type_errors(spec: Obj) -> Iterator[FieldError]:
    kind, is_headless = spec.get("type", ""), spec.get("clusterIP") == "None"
    if kind == "ExternalName":
        name = spec.get("externalName", "").rstrip(".")
        if not name:
            yield FieldError.required("spec.externalName")
            return
        for detail in names.dns_subdomain_errors(name):
            yield FieldError.invalid("spec.externalName", spec["externalName"], detail)
        return
    if not spec.get("ports") and not is_headless:
        yield FieldError.required("spec.ports")
    if kind in _EXTERNAL and is_headless:
        detail = f"may not be set to 'None' for {kind} services"
        yield FieldError.invalid("spec.clusterIPs[0]", "None", detail)


_PORT: tuple[Row, ...] = (
    ("[*].name", unless_empty(follows(names.dns_label_errors)), unique_unless_empty),
    ("[*].port", or_else(0, port_number_errors)),
    ("[*].protocol", required_one_of("SCTP", "TCP", "UDP")),
    ("[*].targetPort", or_else(0, port_reference_errors)),
)
_only_port_errors, _several_ports_errors = part(*_PORT), part(("[*].name", required), *_PORT)


def _ports_errors(ports: list[Obj], path: str) -> list[FieldError]:
    check = _several_ports_errors if len(ports) > 1 else _only_port_errors
    return check(ports, path)


def _affinity_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    path, config = f"{path}.sessionAffinityConfig", spec.get("sessionAffinityConfig")
    if spec.get("sessionAffinity") != "ClientIP":
        if config is not None:
            yield FieldError.forbidden(path, "must not be set when session affinity is None")
        return
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if seconds is None:
        yield FieldError.required(path, "when session affinity type is ClientIP")
    elif not 0 < seconds <= _MAX_AFFINITY_SECONDS:
        detail = f"must be greater than 0 and less than {_MAX_AFFINITY_SECONDS}"
        yield FieldError.invalid(f"{path}.clientIP.timeoutSeconds", seconds, detail)


def _cluster_ip_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    path, addresses = f"{path}.clusterIPs", spec.get("clusterIPs", [])
    if spec.get("type") == "ExternalName":
        if addresses:
            yield FieldError.forbidden(path, "may not be set for ExternalName services")
        return
    if addresses and spec.get("clusterIP", "") != addresses[0]:
        yield FieldError.invalid(path, addresses, "first value must match `clusterIP`")
    for index, address in enumerate(addresses):
        if address != "None":
            yield from ip_errors(address, f"{path}[{index}]")


def _changed_address_errors(new: Obj, old: Obj) -> Iterator[FieldError]:
    spec, was = new["spec"], old["spec"]
    before, after = was.get("clusterIPs", []), spec.get("clusterIPs", [])
    has_addresses = _has_addresses(spec) and _has_addresses(was)
    if has_addresses and before and after and before[0] != after[0]:
        yield FieldError.invalid("spec.clusterIPs[0]", after, "may not change once set")


def _protocol_and_port(port: Obj) -> tuple[str, int]:
    return port.get("protocol", ""), port.get("port", 0)


def _shown_port(port: Obj) -> Obj:
    protocol, number = _protocol_and_port(port)
    return go_struct({"protocol": protocol, "port": number}, SERVICE_PORT)


_traffic_policy = required_one_of("Cluster", "Local").check
_UNREACHABLE = "may only be set for externally-accessible services"
_NO_NODE_PORT = "may not be used when `type` is 'ClusterIP'"

validate_service = validator(
    ("spec", without_path(_type_errors)),
    ("spec.ports", _ports_errors),
    ("spec.selector", label_errors),
    ("spec.sessionAffinity", required_one_of("ClientIP", "None")),
    ("spec", _affinity_errors),
    ("spec.type", required_one_of("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")),
    ("spec", _cluster_ip_errors),
    (
        "spec",
        when(
            lambda spec: spec.get("type") not in _EXTERNAL,
            ("ports[*].nodePort", unless_empty(forbidden(_NO_NODE_PORT))),
        ),
    ),
    ("spec.ports[*]", Unique(_protocol_and_port, _shown_port)),
    ("spec.ipFamilyPolicy", required_one_of(*_FAMILY_POLICIES).check),
    ("spec.externalIPs[*]", endpoint_address_errors),
    ("spec.externalTrafficPolicy", _traffic_policy),
    ("spec.internalTrafficPolicy", _traffic_policy),
    ("spec", when(_is_unreachable, ("externalTrafficPolicy", invalid(_UNREACHABLE)))),
)


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
    served=(Served("", "v1", "io.k8s.api.core.v1.Service"),),
    short_names=("svc",),
    categories=("all",),
    strategy=Strategy(
        default=default_service,
        prepare_create=prepare_service_create,
        prepare_update=prepare_service_update,
        validate=validate_service,
        validate_update=update(validate_service, before=_changed_address_errors),
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
