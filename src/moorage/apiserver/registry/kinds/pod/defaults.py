"""Defaults of a pod: those of any pod template, and what only a pod gets."""

from __future__ import annotations

import msgspec

from moorage.api.pods import PodSpec
from moorage.api.quantity import to_texts
from moorage.apiserver.registry.defaults.pod_template import (
    all_containers,
    default_host_ports,
    default_pod_spec,
    round_resources,
)
from moorage.apiserver.registry.kind import Obj
from moorage.runtimeclass.overhead import container_requests, may_be_pod_level


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
