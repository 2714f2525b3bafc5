"""Columns of workloads that keep a number of pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    column,
    containers_of,
    printer,
    selector_column,
    selector_text,
)
from moorage.apiserver.registry.kind import Obj, Printer


def _ready_text(workload: Obj) -> str:
    spec, status = workload.get("spec", {}), workload.get("status", {})
    return f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"


READY = column("Ready", _ready_text, description="Number of the pod with ready state")


def replica_printer(type_: str, show_selector: Callable[[Any], str] = selector_text) -> Printer:
    """Return the printer of a kind; `type_` is its type, whose fields document the columns."""
    return printer(
        NAME,
        column("Desired", "spec.replicas", "integer", of=f"{type_}Spec"),
        column("Current", "status.replicas", "integer", of=f"{type_}Status"),
        column("Ready", "status.readyReplicas", "integer", of=f"{type_}Status"),
        AGE,
        *containers_of(),
        selector_column(f"{type_}Spec", show_selector),
    )
