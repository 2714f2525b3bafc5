"""Mirror pods: what the API shows of static pods. The plan is pure.

A mirror has the annotation `kubernetes.io/config.mirror` with the hash of its manifest, and the
node as its owner. One that is deleted is made again; one whose static pod is gone or has changed is
deleted. Source: kubelet `pod/mirror_client.go`, KEP-1314.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.api.nodes import Node
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.node.pod_facts.sources import CONFIG_HASH


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """Mirrors to delete, static pods whose mirror is to be created, and pairs that agree."""

    delete: tuple[Pod, ...] = ()
    create: tuple[Pod, ...] = ()
    pairs: tuple[tuple[Pod, Pod], ...] = ()


def plan_mirrors(static: Iterable[Pod], mirrors: Iterable[Pod]) -> MirrorPlan:
    """Return what makes the mirrors agree with the static pods of this node."""
    by_name = {_name(mirror): mirror for mirror in mirrors}
    delete, create, pairs = [], [], []
    for pod in static:
        mirror = by_name.pop(_name(pod), None)
        if mirror is None:
            create.append(pod)
        elif is_mirror_of(mirror, pod) and mirror.metadata.deletion_timestamp is None:
            pairs.append((pod, mirror))
        else:
            # It is created when the API has deleted this one.
            delete.append(mirror)
    return MirrorPlan((*delete, *by_name.values()), tuple(create), tuple(pairs))


def is_mirror_of(mirror: Pod, pod: Pod) -> bool:
    """Return whether a mirror shows this version of a static pod."""
    return mirror.metadata.annotations.get(MIRROR_ANNOTATION) == pod.metadata.annotations.get(
        CONFIG_HASH
    )


def mirror_of(pod: Pod, node: Node) -> dict[str, Any]:
    """Return the mirror of a static pod, to create."""
    meta = pod.metadata
    return {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": dict(meta.labels),
            "annotations": {
                **meta.annotations,
                MIRROR_ANNOTATION: meta.annotations[CONFIG_HASH],
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": node.metadata.name,
                    "uid": node.metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": msgspec.to_builtins(pod.spec),
    }


def _name(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name
