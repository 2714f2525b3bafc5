"""Daemon pods: how one is made for a node, and which node one is for.

A pod is bound by the scheduler; required node affinity with the node's name leaves it no choice.
Source: `daemonset_util`.
"""

from __future__ import annotations

from typing import Any

from moorage.api.meta import Raw
from moorage.api.workloads import DaemonSet
from moorage.controllers.daemonsets.placement import daemon_tolerations
from moorage.controllers.objects import Pod
from moorage.controllers.pod_requests import pod_of
from moorage.wire.client.resources import DAEMON_SETS

HASH = "controller-revision-hash"
GENERATION = "pod-template-generation"
_GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"
_NAME_FIELD = "metadata.name"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_pod(daemon_set: DaemonSet, node: str, hash_: str) -> dict[str, Any]:
    """Return the set's pod for a node, as JSON."""
    pod = pod_of(DAEMON_SETS, daemon_set.metadata, daemon_set.spec.template)
    meta, spec = pod["metadata"], pod["spec"]
    labels = {**meta.get("labels", {}), HASH: hash_}
    generation = template_generation(daemon_set)
    if generation is not None:
        labels[GENERATION] = generation
    return {
        "metadata": {**meta, "labels": labels},
        "spec": {
            **spec,
            "tolerations": daemon_tolerations(spec),
            "affinity": _bound_to(spec.get("affinity") or {}, node),
        },
    }


def template_generation(daemon_set: DaemonSet) -> str | None:
    """Return the deprecated number of the template, None without one."""
    text = daemon_set.metadata.annotations.get(_GENERATION_ANNOTATION, "")
    return text if text.isascii() and text.isdigit() else None


def is_updated(daemon_set: DaemonSet, pod: Pod, hash_: str) -> bool:
    """Return whether the pod was made from the present template."""
    labels, generation = pod.metadata.labels, template_generation(daemon_set)
    return labels.get(HASH) == hash_ or (
        generation is not None and labels.get(GENERATION) == generation
    )


def target_node(pod: Pod) -> str | None:
    """Return the node that the pod is bound to, or that its affinity names; None without one."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    for term in required.node_selector_terms if required else ():
        for requirement in term.match_fields:
            if requirement.key == _NAME_FIELD and requirement.operator == "In":
                return requirement.values[0] if len(requirement.values) == 1 else None
    return None


def _bound_to(affinity: Raw, node: str) -> Raw:
    named = {"key": _NAME_FIELD, "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [named]}]}
    node_affinity = affinity.get("nodeAffinity") or {}
    return {**affinity, "nodeAffinity": {**node_affinity, _REQUIRED: required}}
