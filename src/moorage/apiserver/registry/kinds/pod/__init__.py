"""Pods."""

from __future__ import annotations

import msgspec

from moorage.api.pods import PodSpec
from moorage.api.qos import qos_class
from moorage.api.quantity import to_texts
from moorage.apiserver.registry.defaults import (
    all_containers,
    default_host_ports,
    default_pod_spec,
    round_resources,
)
from moorage.apiserver.registry.kind import (
    STATUS_VERBS,
    Kind,
    Obj,
    PartRules,
    SelectableField,
    Served,
    Strategy,
    Subresource,
    get_spec,
    proxy_subresource,
    status_subresource,
)
from moorage.apiserver.registry.kinds.pod.columns import PRINTER
from moorage.apiserver.registry.kinds.pod.resize import prepare_resize, validate_resize
from moorage.apiserver.registry.kinds.pod.validation import (
    validate_ephemeral_containers_update,
    validate_pod,
    validate_pod_status,
    validate_pod_update,
)
from moorage.apiserver.registry.preparation import keep, keep_spec, keep_status, put
from moorage.apiserver.registry.warnings import spec_warnings
from moorage.runtimeclass.overhead import container_requests, may_be_pod_level

_DEFAULT_GRACE_S = 30
_CONNECT = ("create", "get")


def default_pod(pod: Obj) -> None:
    """Default a pod: unset requests equal the limits, service links are enabled."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in all_containers(spec):
        _default_requests(container)
    if spec.get("resources"):
        _default_pod_requests(spec)
    if spec.get("hostNetwork"):
        default_host_ports(spec)


def _default_requests(holder: Obj) -> None:
    resources = holder.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**limits, **resources.get("requests", {})}


def _default_pod_requests(spec: Obj) -> None:
    """What the pod asks as a whole: its containers' sum, else its limit (KEP-2837)."""
    resources = spec["resources"]
    round_resources(resources)
    total = to_texts(container_requests(msgspec.convert(spec, PodSpec)))
    requests = {
        name: text
        for name, text in {**resources.get("limits", {}), **total}.items()
        if may_be_pod_level(name)
    }
    requests |= resources.get("requests", {})
    if requests:
        resources["requests"] = requests


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


def warn_pod(pod: Obj, old: Obj | None) -> list[str]:
    """Return the warnings for a new pod; on updates there are none, since it is too late to act."""
    return [] if old is not None else spec_warnings(pod["spec"], "spec")


def _pod_grace_seconds(pod: Obj, asked: int | None) -> int:
    """A pod that does not run, or has ended, needs no time to end."""
    grace_s = asked
    if grace_s is None:
        grace_s = pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in (
        "Succeeded",
        "Failed",
    ):
        return 0
    return int(grace_s) if grace_s >= 0 else 1


POD = Kind(
    name="Pod",
    plural="pods",
    served=(Served("", "v1", "io.k8s.api.core.v1.Pod"),),
    short_names=("po",),
    categories=("all",),
    strategy=Strategy(
        default=default_pod,
        prepare_create=prepare_pod_create,
        prepare_update=keep_status,
        validate=validate_pod,
        validate_update=validate_pod_update,
        parts={
            "status": PartRules(prepare_pod_status, validate_pod_status),
            "ephemeralcontainers": PartRules(
                prepare_ephemeral_containers,
                validate_ephemeral_containers_update,
            ),
            "resize": PartRules(prepare_resize, validate_resize),
            # Binding completes the spec that the user wrote; it does not change it.
            "binding": PartRules(raises_generation=False),
        },
        warn=warn_pod,
        spec_of=get_spec,
        returns_deleted=True,
        grace_seconds=_pod_grace_seconds,
    ),
    printer=PRINTER,
    selectable=(
        SelectableField("spec.nodeName", ("spec", "nodeName")),
        SelectableField("spec.host", ("spec", "nodeName")),
        SelectableField("spec.restartPolicy", ("spec", "restartPolicy")),
        SelectableField("spec.schedulerName", ("spec", "schedulerName")),
        SelectableField("spec.serviceAccountName", ("spec", "serviceAccountName")),
        SelectableField("spec.hostNetwork", ("spec", "hostNetwork"), "false"),
        SelectableField("status.phase", ("status", "phase")),
        SelectableField("status.podIP", ("status", "podIP")),
        SelectableField("status.podIPs", ("status", "podIP")),
        SelectableField("status.nominatedNodeName", ("status", "nominatedNodeName")),
    ),
    subresources={
        **status_subresource(),
        "attach": Subresource(verbs=_CONNECT, kind="PodAttachOptions"),
        "binding": Subresource(
            verbs=("create",), kind="Binding", type="io.k8s.api.core.v1.Binding"
        ),
        "ephemeralcontainers": Subresource(verbs=STATUS_VERBS),
        "eviction": Subresource(
            verbs=("create",),
            group="policy",
            version="v1",
            kind="Eviction",
            type="io.k8s.api.policy.v1.Eviction",
        ),
        "exec": Subresource(verbs=_CONNECT, kind="PodExecOptions"),
        "log": Subresource(verbs=("get",)),
        "portforward": Subresource(verbs=_CONNECT, kind="PodPortForwardOptions"),
        "resize": Subresource(verbs=STATUS_VERBS),
        **proxy_subresource("PodProxyOptions"),
    },
)
