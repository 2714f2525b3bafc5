"""Status of ingresses."""

from __future__ import annotations

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.addresses import ip_errors, parse_ip

NOT_AN_IP = "must be a DNS name, not an IP address"


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
