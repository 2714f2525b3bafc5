"""Columns that several kinds have: of workloads, of volumes, of Scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from moorage.api.claims.annotations import BETA_CLASS
from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    Shown,
    column,
    containers_of,
    printer,
    selector_column,
    selector_text,
)
from moorage.apiserver.registry.kind import Obj, Printer

UNSET = "<unset>"


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


_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes_text(modes: Iterable[str]) -> str:
    """Return access modes in short form, in a fixed order."""
    present = set(modes)
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in present)


def phase_text(obj: Obj) -> str:
    """Return the phase, or that the object is being deleted."""
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    return str(obj.get("status", {}).get("phase", ""))


def class_text(obj: Obj) -> str:
    """Return the storage class; the annotation of old wins."""
    annotations = obj["metadata"].get("annotations", {})
    name = annotations.get(BETA_CLASS, obj.get("spec", {}).get("storageClassName", ""))
    return str(name)


def _scale_printer(name: Shown, desired: str, available: str, age: Shown) -> Printer:
    return printer(
        name,
        column("Desired", "spec.replicas", "integer", description=desired),
        column("Available", "status.replicas", "integer", description=available),
        age,
    )


SCALE = _scale_printer(
    Shown(replace(NAME.column, format=""), NAME.cell),
    "replicas is the desired number of instances for the scaled object.",
    "replicas is the actual number of observed instances of the scaled object.",
    AGE,
)
"""Printer for Scales of built-in kinds."""

CUSTOM_SCALE = _scale_printer(
    NAME,
    "Number of desired replicas",
    "Number of actual replicas",
    Shown(replace(AGE.column, type="date"), AGE.cell),
)
"""Printer for Scales of custom resources."""
