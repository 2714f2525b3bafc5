"""Nodes. Source: core validation `ValidateNode`, `ValidateNodeUpdate`, Kubernetes 1.36."""

from __future__ import annotations

import ipaddress
from functools import partial

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CORE, NONE, UNKNOWN, joined
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
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

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def default_node(node: Obj) -> None:
    """Default the allocatable resources to the whole capacity."""
    status = node.get("status", {})
    if "capacity" in status:
        status["allocatable"] = {**status["capacity"], **status.get("allocatable", {})}


def validate_node(node: Obj) -> list[FieldError]:
    """Return the errors of a new Node."""
    spec = node.get("spec", {})
    errors = _taint_errors(spec.get("taints", [])) + _capacity_errors(node)
    networks = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    return errors + _network_errors(networks)


def validate_node_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: the pod CIDR, once set, is immutable."""
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
            FieldError.invalid(f"{path}.key", key, detail)
            for detail in names.qualified_name_errors(key)
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


def warn_node(node: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about deprecated fields."""
    spec = node.get("spec", {})
    was = (old or {}).get("spec", {})
    warnings: list[str] = []
    if "configSource" in spec and "configSource" not in was:
        warnings.append("spec.configSource: the feature is no longer supported")
    if spec.get("externalID") and not was.get("externalID"):
        warnings.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    return warnings


def _or_unknown(text: str) -> str:
    return text or UNKNOWN


def _kernel(info: Obj) -> str:
    kernel = info.get("kernelVersion") or UNKNOWN
    return f"{kernel} ({info['architecture']})" if info.get("architecture") else str(kernel)


def _status(node: Obj) -> str:
    conditions = {
        condition["type"]: condition for condition in node.get("status", {}).get("conditions") or ()
    }
    words = ["Unknown"]
    if "Ready" in conditions:
        words = ["Ready" if conditions["Ready"].get("status") == "True" else "NotReady"]
    if node.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: Obj) -> str:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return joined(sorted((roles | {labels.get(_ROLE_LABEL, "")}) - {""}))


def _address(node: Obj, type_: str) -> str:
    for address in node.get("status", {}).get("addresses") or ():
        if address.get("type") == type_:
            return str(address.get("address", ""))
    return NONE


_INFO, _ADDRESSES = f"{CORE}.NodeSystemInfo", f"{CORE}.NodeStatus.addresses"

NODE = Kind(
    name="Node",
    plural="nodes",
    served=(Served("", "v1", "io.k8s.api.core.v1.Node"),),
    is_namespaced=False,
    short_names=("no",),
    strategy=Strategy(
        default=default_node,
        prepare_update=keep_status,
        validate=validate_node,
        validate_update=validate_node_update,
        parts={"status": PartRules(keep_spec, validate_node_update)},
        warn=warn_node,
    ),
    printer=printer(
        NAME,
        column("Status", _status, description="The status of the node"),
        column("Roles", _roles, description="The roles of the node"),
        AGE,
        column("Version", "status.nodeInfo.kubeletVersion", of=_INFO),
        *(
            column(name, partial(_address, type_=type_), documented_by=_ADDRESSES, priority=1)
            for name, type_ in (("Internal-IP", "InternalIP"), ("External-IP", "ExternalIP"))
        ),
        column(
            "OS-Image",
            "status.nodeInfo.osImage",
            of=_INFO,
            absent=UNKNOWN,
            show=_or_unknown,
            priority=1,
        ),
        column(
            "Kernel-Version",
            "status.nodeInfo",
            absent=UNKNOWN,
            show=_kernel,
            documented_by=f"{_INFO}.kernelVersion",
            priority=1,
        ),
        column(
            "Container-Runtime",
            "status.nodeInfo.containerRuntimeVersion",
            of=_INFO,
            absent=UNKNOWN,
            show=_or_unknown,
            priority=1,
        ),
    ),
    selectable=(SelectableField("spec.unschedulable", ("spec", "unschedulable"), "false"),),
    subresources={**proxy_subresource("NodeProxyOptions"), **status_subresource()},
)
