"""QoS class of a pod. Source: core/v1 PodStatus `qosClass`; kubelet `GetPodQOS`."""

from __future__ import annotations

import msgspec

from moorage.api.pods import Pod
from moorage.api.qos import qos_class


def pod_qos_class(pod: Pod) -> str:
    """Return the pod's QoS class: as the API server stored it, else computed."""
    return pod.status.qos_class or qos_class(msgspec.to_builtins(pod.spec))
