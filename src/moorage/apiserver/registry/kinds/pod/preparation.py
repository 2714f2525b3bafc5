"""Fields of a pod that a write may not set or change. Source: pod strategies of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api.qos import qos_class
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.preparation import keep, keep_spec, keep_status, put


def prepare_pod_create(pod: Obj) -> None:
    """Reset the fields of a new Pod that clients may not set."""
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
    """Keep owners, because old agents garbled them, and the QoS class."""
    keep_spec(new, old)
    keep(new["metadata"], old["metadata"], "ownerReferences")
    status = new.setdefault("status", {})
    if not status.get("qosClass"):
        keep(status, old.get("status", {}), "qosClass")


def prepare_ephemeral_containers(new: Obj, old: Obj) -> None:
    """Keep everything but the ephemeral containers."""
    added = new["spec"].get("ephemeralContainers")
    new["spec"] = {**old["spec"]}
    put(new["spec"], "ephemeralContainers", added)
    keep_status(new, old)
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        keep(new["metadata"], old["metadata"], field)
