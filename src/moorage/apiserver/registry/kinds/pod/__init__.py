"""Pods."""

from __future__ import annotations

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
from moorage.apiserver.registry.kinds.pod.defaults import default_pod
from moorage.apiserver.registry.kinds.pod.preparation import (
    prepare_ephemeral_containers,
    prepare_pod_create,
    prepare_pod_status,
)
from moorage.apiserver.registry.kinds.pod.resize import prepare_resize, validate_resize
from moorage.apiserver.registry.kinds.pod.validation import (
    validate_ephemeral_containers_update,
    validate_pod,
    validate_pod_status,
    validate_pod_update,
)
from moorage.apiserver.registry.kinds.pod.warnings import warn_pod
from moorage.apiserver.registry.preparation import keep_status

_DEFAULT_GRACE_S = 30
_CONNECT = ("create", "get")


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
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.Pod"),),
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
