"""Nodes."""

from __future__ import annotations

from moorage.registry.kind import Obj


def default_node(node: Obj) -> None:
    """What can be allocated is the whole capacity, where the agent does not say otherwise."""
    status = node.get("status", {})
    if "capacity" in status:
        status["allocatable"] = {**status["capacity"], **status.get("allocatable", {})}
