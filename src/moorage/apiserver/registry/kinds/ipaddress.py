"""IPAddresses. Source: networking validation of Kubernetes 1.37."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NAME, NONE, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.addresses import strict_ip_details

_TYPES = "io.k8s.api.networking.v1"
_PARENT = "spec.parentRef"
_FIELDS = ("group", "resource", "namespace", "name")


def validate_ip_address(address: Obj) -> list[FieldError]:
    """Return the errors of a new IPAddress."""
    return list(_parent_errors(_parent_of(address)))


def validate_ip_address_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: the parent is immutable."""
    before, after = _parent_of(old), _parent_of(new)
    errors = validate_ip_address(new)
    if before != after:
        # Upstream shows it under the names of its internal type.
        shown = None if after is None else {key.title(): after.get(key, "") for key in _FIELDS}
        errors.append(FieldError.invalid(_PARENT, shown, "field is immutable"))
    return errors


def _parent_of(address: Obj) -> Obj | None:
    parent: Obj | None = address.get("spec", {}).get("parentRef")
    return parent


def _parent_errors(parent: Obj | None) -> Iterator[FieldError]:
    if parent is None:
        yield FieldError.required(_PARENT)
        return
    if group := parent.get("group", ""):
        for detail in names.dns_subdomain_errors(group):
            yield FieldError.invalid(f"{_PARENT}.group", group, detail)
    for field, is_required in (("resource", True), ("name", True), ("namespace", False)):
        value = parent.get(field, "")
        if not value and is_required:
            yield FieldError.required(f"{_PARENT}.{field}")
        for detail in names.path_segment_errors(value):
            yield FieldError.invalid(f"{_PARENT}.{field}", value, detail)


def _cells(address: Obj, now: float) -> list[Any]:
    del now
    return [name_of(address), _parent_text(_parent_of(address))]


def _parent_text(parent: Obj | None) -> str:
    if parent is None:
        return NONE
    resource, group = parent.get("resource", ""), parent.get("group", "")
    kind = f"{resource}.{group}" if group else resource
    parts = (kind.lower(), parent.get("namespace", ""), parent.get("name", ""))
    return "/".join(part for part in parts if part)


_PRINTER = Printer(
    columns=(NAME, Column("ParentRef", documented_by=f"{_TYPES}.IPAddressSpec.parentRef")),
    cells=_cells,
)

IP_ADDRESS = Kind(
    name="IPAddress",
    plural="ipaddresses",
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.IPAddress"),),
    is_namespaced=False,
    short_names=("ip",),
    strategy=Strategy(
        validate=validate_ip_address,
        validate_update=validate_ip_address_update,
        name_errors=strict_ip_details,
    ),
    printer=_PRINTER,
)
