"""What a write may not bring along: fields that are the server's, or another endpoint's.

Each function puts such fields back to what they were, in place; validation comes after. Source:
registry strategies of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorage.api.qos import qos_class
from moorage.registry.defaults.namespaces import FINALIZER, NAME_LABEL
from moorage.registry.kind import Obj

Prepare = Callable[[Obj, Obj], None]


def keep_status(new: Obj, old: Obj) -> None:
    """The main endpoint does not write the status."""
    _keep(new, old, "status")


def keep_spec(new: Obj, old: Obj) -> None:
    """The status endpoint writes the status and metadata, nothing else."""
    for field in new.keys() | old.keys():
        if field not in ("metadata", "status"):
            _keep(new, old, field)


def keep_spec_and_labels(new: Obj, old: Obj) -> None:
    """As `keep_spec`, and labels stay too: workloads' status endpoints."""
    keep_spec(new, old)
    _keep(new["metadata"], old["metadata"], "labels")


def drop_status(obj: Obj) -> None:
    """A new object has no status yet."""
    obj["status"] = {}


def prepare_pod_create(pod: Obj) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def prepare_pod_status(new: Obj, old: Obj) -> None:
    """Owners stay, because old agents garbled them, and so does the class of service."""
    keep_spec(new, old)
    _keep(new["metadata"], old["metadata"], "ownerReferences")
    status = new.setdefault("status", {})
    if not status.get("qosClass"):
        _keep(status, old.get("status", {}), "qosClass")


def prepare_ephemeral_containers(new: Obj, old: Obj) -> None:
    """Only the ephemeral containers of the new pod count."""
    added = new["spec"].get("ephemeralContainers")
    new["spec"] = {**old["spec"]}
    _put(new["spec"], "ephemeralContainers", added)
    keep_status(new, old)
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        _keep(new["metadata"], old["metadata"], field)


def prepare_namespace_create(namespace: Obj) -> None:
    namespace["status"] = {"phase": "Active"}
    finalizers = namespace.setdefault("spec", {}).setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)
    # A generated name is known only now.
    metadata = namespace["metadata"]
    metadata["labels"] = {**metadata.get("labels", {}), NAME_LABEL: metadata.get("name", "")}


def prepare_namespace_update(new: Obj, old: Obj) -> None:
    _put(new.setdefault("spec", {}), "finalizers", old.get("spec", {}).get("finalizers"))
    keep_status(new, old)


def prepare_namespace_finalize(new: Obj, old: Obj) -> None:
    """Only the finalizers in the spec may change here."""
    keep_status(new, old)


def prepare_service_create(service: Obj) -> None:
    service["status"] = {"loadBalancer": {}}


def prepare_secret_update(new: Obj, old: Obj) -> None:
    """An update that leaves the type out keeps it."""
    if not new.get("type"):
        _keep(new, old, "type")


def _keep(new: Obj, old: Obj, field: str) -> None:
    _put(new, field, old.get(field))


def _put(obj: Obj, field: str, value: Any) -> None:
    if value is None:
        obj.pop(field, None)
    else:
        obj[field] = value
