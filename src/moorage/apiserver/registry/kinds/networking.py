"""NetworkPolicies, ServiceCIDRs, IPAddresses. Source: networking validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Container, Iterator

from moorage.api import labels, names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    IMMUTABLE,
    follows,
    present,
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
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.addresses import (
    cidr_errors,
    cidr_warnings,
    is_strict_subset,
    parse_cidr,
    strict_cidr_errors,
    strict_ip_details,
)
from moorage.apiserver.registry.validation.containers import port_number_errors
from moorage.apiserver.registry.validation.probes import port_reference_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors

_TYPES = "io.k8s.api.networking.v1"
_POLICY_TYPES = ("Ingress", "Egress")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_CIDRS = "spec.cidrs"
_MOST = 2
_IMMUTABLE = "field is immutable"
_FIELDS = ("group", "resource", "namespace", "name")
_PEERS = {"ingress": "from", "egress": "to"}
"""Field of the peers in the rules of a direction."""


def default_network_policy(policy: Obj) -> None:
    """Set the protocols of ports and the types of the policy."""
    spec = policy.get("spec")
    if spec is None:
        return
    for direction in _PEERS:
        for rule in spec.get(direction, ()):
            for port in rule.get("ports", ()):
                port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def validate_network_policy(policy: Obj) -> list[FieldError]:
    """Return the errors of a new NetworkPolicy."""
    return list(_spec_errors(policy["spec"], ()))


def validate_network_policy_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update.

    CIDR values that the old policy had, and selectors' values if its own selector was wrong, may
    be illegal: they are older than the rules.
    """
    before = old["spec"]
    known = {value for block, _ in _blocks(before) for _, value in _values(block)}
    errors = _spec_errors(new["spec"], known)
    if any(label_selector_errors(before.get("podSelector", {}), "")):
        return [error for error in errors if ".values[" not in error.field]
    return list(errors)


def warn_about_cidrs(new: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about ambiguous and non-canonical CIDR values."""
    del old
    return [
        warning
        for block, path in _blocks(new["spec"])
        for field, value in _values(block)
        for warning in cidr_warnings(value, f"{path}.{field}")
    ]


def _blocks(spec: Obj) -> Iterator[tuple[Obj, str]]:
    """Yield the IP blocks with their paths."""
    for direction, field in _PEERS.items():
        for index, rule in enumerate(spec.get(direction, ())):
            for number, peer in enumerate(rule.get(field, ())):
                if "ipBlock" in peer:
                    yield peer["ipBlock"], f"spec.{direction}[{index}].{field}[{number}].ipBlock"


def _values(block: Obj) -> Iterator[tuple[str, str]]:
    """Yield the fields of an IP block with their CIDR values."""
    yield "cidr", block.get("cidr", "")
    for index, value in enumerate(block.get("except", ())):
        yield f"except[{index}]", value


def _spec_errors(spec: Obj, known: Container[str]) -> Iterator[FieldError]:
    yield from label_selector_errors(spec.get("podSelector", {}), "spec.podSelector")
    for direction, field in _PEERS.items():
        for index, rule in enumerate(spec.get(direction, ())):
            path = f"spec.{direction}[{index}]"
            for number, port in enumerate(rule.get("ports", ())):
                yield from _port_errors(port, f"{path}.ports[{number}]")
            for number, peer in enumerate(rule.get(field, ())):
                yield from _peer_errors(peer, f"{path}.{field}[{number}]", known)
    types = spec.get("policyTypes", [])
    if len(types) > len(_POLICY_TYPES):
        detail = "may not specify more than two policyTypes"
        yield FieldError.invalid("spec.policyTypes", types, detail)
        return
    for index, type_ in enumerate(types):
        if type_ not in _POLICY_TYPES:
            yield FieldError.not_supported(f"spec.policyTypes[{index}]", type_, _POLICY_TYPES)


def _port_errors(port: Obj, path: str) -> Iterator[FieldError]:
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in _PROTOCOLS:
        yield FieldError.not_supported(f"{path}.protocol", protocol, _PROTOCOLS)
    at = f"{path}.endPort"
    if isinstance(number, int):
        yield from port_reference_errors(number, f"{path}.port")
        if end is not None:
            if end < number:
                yield FieldError.invalid(at, end, "must be greater than or equal to `port`")
            yield from port_number_errors(end, at)
        return
    if end is not None:
        what = "not specified" if number is None else "non-numeric"
        yield FieldError.invalid(at, end, f"may not be specified when `port` is {what}")
    if number is not None:
        yield from port_reference_errors(number, f"{path}.port")


def _peer_errors(peer: Obj, path: str, known: Container[str]) -> Iterator[FieldError]:
    selectors = [field for field in ("podSelector", "namespaceSelector") if field in peer]
    for field in selectors:
        yield from label_selector_errors(peer[field], f"{path}.{field}")
    if "ipBlock" in peer:
        yield from _block_errors(peer["ipBlock"], f"{path}.ipBlock", known)
        if selectors:
            detail = "may not specify both ipBlock and another peer"
            yield FieldError.forbidden(path, detail)
    elif not selectors:
        yield FieldError.required(path, "must specify a peer")


def _block_errors(block: Obj, path: str, known: Container[str]) -> Iterator[FieldError]:
    cidr = block.get("cidr", "")
    if not cidr:
        yield FieldError.required(f"{path}.cidr")
        return
    yield from cidr_errors(cidr, f"{path}.cidr", known)
    whole = parse_cidr(cidr)
    if whole is None:
        return
    for index, value in enumerate(block.get("except", ())):
        at = f"{path}.except[{index}]"
        yield from cidr_errors(value, at, known)
        excepted = parse_cidr(value)
        if excepted is not None and not is_strict_subset(excepted.network, of=whole.network):
            yield FieldError.invalid(at, value, "must be a strict subset of `cidr`")


def _selector_text(policy: Obj) -> str:
    try:
        return str(labels.from_object(policy.get("spec", {}).get("podSelector", {}))) or NONE
    except ValueError:
        return "<error>"


NETWORK_POLICY = Kind(
    name="NetworkPolicy",
    plural="networkpolicies",
    served=(Served("networking.k8s.io", "v1", f"{_TYPES}.NetworkPolicy"),),
    short_names=("netpol",),
    strategy=Strategy(
        default=default_network_policy,
        validate=validate_network_policy,
        validate_update=validate_network_policy_update,
        warn=warn_about_cidrs,
        spec_of=get_spec,
    ),
    printer=printer(
        NAME,
        column(
            "Pod-Selector",
            _selector_text,
            documented_by=f"{_TYPES}.NetworkPolicySpec.podSelector",
        ),
        AGE,
    ),
)


def validate_service_cidr(service_cidr: Obj) -> list[FieldError]:
    """Return the errors of a new ServiceCIDR."""
    cidrs = _cidrs_of(service_cidr)
    if not cidrs:
        return [FieldError.required(_CIDRS, "at least one CIDR required")]
    if len(cidrs) > _MOST:
        detail = "may only hold up to 2 values"
        return [FieldError.invalid(_CIDRS, {"CIDRs": cidrs}, detail)]
    errors = [
        error
        for index, cidr in enumerate(cidrs)
        for error in strict_cidr_errors(cidr, f"{_CIDRS}[{index}]")
    ]
    families = [parsed.version for parsed in map(parse_cidr, cidrs) if parsed is not None]
    if len(families) == _MOST and families[0] == families[1]:
        detail = (
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and "
            "2001:db8::/64"
        )
        errors.append(FieldError.invalid(_CIDRS, cidrs, detail))
    return errors


def validate_service_cidr_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: a second CIDR may be added, nothing else changes."""
    before, after = _cidrs_of(old), _cidrs_of(new)
    if len(before) == len(after):
        return [
            FieldError.invalid(f"{_CIDRS}[{index}]", cidr, _IMMUTABLE)
            for index, cidr in enumerate(after)
            if cidr != before[index]
        ]
    if (len(before), len(after)) == (1, _MOST):
        errors = validate_service_cidr(new)
        if after[0] != before[0]:
            errors.insert(0, FieldError.invalid(f"{_CIDRS}[0]", after[0], _IMMUTABLE))
        return errors
    return [FieldError.invalid(_CIDRS, after, _IMMUTABLE)]


def _cidrs_of(service_cidr: Obj) -> list[str]:
    cidrs: list[str] = service_cidr.get("spec", {}).get("cidrs", [])
    return cidrs


SERVICE_CIDR = Kind(
    name="ServiceCIDR",
    plural="servicecidrs",
    served=(Served("networking.k8s.io", "v1", f"{_TYPES}.ServiceCIDR"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validate_service_cidr,
        validate_update=validate_service_cidr_update,
        parts={"status": PartRules(prepare=keep_all_but_status)},
    ),
    printer=printer(
        NAME,
        column("CIDRs", "spec.cidrs", of=f"{_TYPES}.ServiceCIDRSpec", show=",".join),
        AGE,
    ),
    subresources=status_subresource(),
)


def _changed_parent(new: Obj, old: Obj) -> Iterator[FieldError]:
    after = _parent_of(new)
    if after != _parent_of(old):
        # Upstream shows it under the names of its internal type.
        shown = None if after is None else {key.title(): after.get(key, "") for key in _FIELDS}
        yield FieldError.invalid("spec.parentRef", shown, IMMUTABLE)


def _parent_of(address: Obj) -> Obj | None:
    parent: Obj | None = address.get("spec", {}).get("parentRef")
    return parent


def _parent_text(parent: Obj) -> str:
    resource, group = parent.get("resource", ""), parent.get("group", "")
    kind = f"{resource}.{group}" if group else resource
    parts = (kind.lower(), parent.get("namespace", ""), parent.get("name", ""))
    return "/".join(part for part in parts if part)


_segment = unless_empty(follows(names.path_segment_errors))
validate_ip_address = validator(
    ("spec.parentRef", present),
    ("spec.parentRef?.group", unless_empty(follows(names.dns_subdomain_errors))),
    ("spec.parentRef?.resource", required, _segment),
    ("spec.parentRef?.name", required, _segment),
    ("spec.parentRef?.namespace", _segment),
)

IP_ADDRESS = Kind(
    name="IPAddress",
    plural="ipaddresses",
    served=(Served("networking.k8s.io", "v1", f"{_TYPES}.IPAddress"),),
    is_namespaced=False,
    short_names=("ip",),
    strategy=Strategy(
        validate=validate_ip_address,
        validate_update=update(validate_ip_address, after=_changed_parent),
        name_errors=strict_ip_details,
    ),
    printer=printer(
        NAME,
        column(
            "ParentRef",
            "spec.parentRef",
            of=f"{_TYPES}.IPAddressSpec",
            absent=NONE,
            show=_parent_text,
        ),
    ),
)
