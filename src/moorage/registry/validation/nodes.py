"""Nodes. Source: core validation `ValidateNode`, `ValidateNodeUpdate`."""

from __future__ import annotations

import ipaddress

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.registry.kind import Obj

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_node(node: Obj) -> list[FieldError]:
    spec = node.get("spec", {})
    errors = _taint_errors(spec.get("taints", [])) + _capacity_errors(node)
    networks = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    return errors + _network_errors(networks)


def validate_node_update(new: Obj, old: Obj) -> list[FieldError]:
    """The pod network, once given, stays."""
    errors = validate_node(new)
    spec, was = new.get("spec", {}), old.get("spec", {})
    before, after = was.get("podCIDRs", []), spec.get("podCIDRs", [])
    if before and before != after:
        errors.append(
            FieldError.forbidden(
                "spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'
            )
        )
    if was.get("providerID") and was["providerID"] != spec.get("providerID"):
        errors.append(
            FieldError.forbidden(
                "spec.providerID", "node updates may not change providerID except from \"\" to "
                "valid",
            )
        )  # fmt: skip
    return errors


def _network_errors(networks: list[str]) -> list[FieldError]:
    """The pod networks: well formed, one of each IP family at most."""
    errors: list[FieldError] = []
    families: list[int] = []
    for index, text in enumerate(networks):
        try:
            families.append(ipaddress.ip_interface(text).version)
        except ValueError:
            families.append(0)
        if families[-1] == 0 or "/" not in text:
            errors.append(
                FieldError.invalid(
                    f"spec.podCIDRs[{index}]",
                    text,
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                )
            )
    if not errors and (len(networks) > 2 or len(set(families)) < len(families)):
        errors.append(
            FieldError.invalid(
                "spec.podCIDRs", networks, "may specify no more than one CIDR for each IP family"
            )
        )
    return errors


def _taint_errors(taints: list[Obj]) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path = f"metadata.taints[{index}]"
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        errors += [
            FieldError.invalid(f"{path}.key", key, each)
            for each in names.qualified_name_errors(key)
        ]
        complaints = names.label_value_errors(value)
        if complaints:
            errors.append(FieldError.invalid(f"{path}.value", value, ";".join(complaints)))
        if not effect:
            errors.append(FieldError.required(f"{path}.effect"))
        elif effect not in _EFFECTS:
            errors.append(FieldError.not_supported(f"{path}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            duplicate = FieldError.duplicate(path, taint)
            errors.append(
                FieldError(
                    duplicate.field,
                    duplicate.kind,
                    f"{duplicate.text}: taints must be unique by key and effect pair",
                )
            )
        seen.add((key, effect))
    return errors


def _capacity_errors(node: Obj) -> list[FieldError]:
    status = node.get("status", {})
    return [
        FieldError.invalid(f"status.{field}.{name}", text, "must be greater than or equal to 0")
        for field in ("capacity", "allocatable")
        for name, text in status.get(field, {}).items()
        if quantity.parse(text).nano < 0
    ]
