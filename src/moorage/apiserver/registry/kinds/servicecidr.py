"""ServiceCIDRs. Source: networking validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.addresses import parse_cidr, strict_cidr_errors

_TYPES = "io.k8s.api.networking.v1"
_CIDRS = "spec.cidrs"
_MOST = 2
_IMMUTABLE = "field is immutable"


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
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.ServiceCIDR"),),
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
