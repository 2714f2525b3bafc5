"""IPAddresses. Source: networking validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import NAME, column, printer
from moorage.apiserver.registry.declare.rules import IMMUTABLE, always, update, validator
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.addresses import strict_ip_details

_TYPES = "io.k8s.api.networking.v1"
_FIELDS = ("group", "resource", "namespace", "name")


def _changed_parent(new: Obj, old: Obj) -> Iterator[FieldError]:
    after = _parent_of(new)
    if after != _parent_of(old):
        # Upstream shows it under the names of its internal type.
        shown = None if after is None else {key.title(): after.get(key, "") for key in _FIELDS}
        yield FieldError.invalid("spec.parentRef", shown, IMMUTABLE)


def _parent_of(address: Obj) -> Obj | None:
    parent: Obj | None = address.get("spec", {}).get("parentRef")
    return parent


def _parent_errors(parent: Obj | None, path: str) -> Iterator[FieldError]:
    if parent is None:
        yield FieldError.required(path)
        return
    if group := parent.get("group", ""):
        for detail in names.dns_subdomain_errors(group):
            yield FieldError.invalid(f"{path}.group", group, detail)
    for field, is_required in (("resource", True), ("name", True), ("namespace", False)):
        value = parent.get(field, "")
        if not value and is_required:
            yield FieldError.required(f"{path}.{field}")
        for detail in names.path_segment_errors(value):
            yield FieldError.invalid(f"{path}.{field}", value, detail)


def _parent_text(parent: Obj) -> str:
    resource, group = parent.get("resource", ""), parent.get("group", "")
    kind = f"{resource}.{group}" if group else resource
    parts = (kind.lower(), parent.get("namespace", ""), parent.get("name", ""))
    return "/".join(part for part in parts if part)


validate_ip_address = validator(("spec.parentRef", always(_parent_errors)))

IP_ADDRESS = Kind(
    name="IPAddress",
    plural="ipaddresses",
    served=(Served(group="networking.k8s.io", version="v1", type=f"{_TYPES}.IPAddress"),),
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
