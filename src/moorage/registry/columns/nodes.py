"""Nodes: ready or not, what they are for, and what runs on them."""

from __future__ import annotations

from typing import Any

from moorage.registry.columns.ages import UNKNOWN
from moorage.registry.columns.cells import AGE, CORE, NAME, NONE, age_of, joined, name_of
from moorage.registry.kind import Column, Obj, Printer

_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"


def _node_cells(node: Obj, now: float) -> list[Any]:
    info = node.get("status", {}).get("nodeInfo", {})
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        name_of(node),
        _status(node),
        joined(sorted(_roles(node))),
        age_of(node, now),
        info.get("kubeletVersion", ""),
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _status(node: Obj) -> str:
    conditions = {each["type"]: each for each in node.get("status", {}).get("conditions") or ()}
    words = ["Unknown"]
    if "Ready" in conditions:
        words = ["Ready" if conditions["Ready"].get("status") == "True" else "NotReady"]
    if node.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: Obj) -> set[str]:
    labels = node["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    return (roles | {labels.get(_ROLE_LABEL, "")}) - {""}


def _address(node: Obj, type_: str) -> str:
    for each in node.get("status", {}).get("addresses") or ():
        if each.get("type") == type_:
            return str(each.get("address", ""))
    return NONE


NODES = Printer(
    columns=(
        NAME,
        Column("Status", description="The status of the node"),
        Column("Roles", description="The roles of the node"),
        AGE,
        Column("Version", documented_by=f"{CORE}.NodeSystemInfo.kubeletVersion"),
        Column("Internal-IP", documented_by=f"{CORE}.NodeStatus.addresses", priority=1),
        Column("External-IP", documented_by=f"{CORE}.NodeStatus.addresses", priority=1),
        Column("OS-Image", documented_by=f"{CORE}.NodeSystemInfo.osImage", priority=1),
        Column("Kernel-Version", documented_by=f"{CORE}.NodeSystemInfo.kernelVersion", priority=1),
        Column(
            "Container-Runtime",
            documented_by=f"{CORE}.NodeSystemInfo.containerRuntimeVersion",
            priority=1,
        ),
    ),
    cells=_node_cells,
)
