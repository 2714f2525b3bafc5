"""Scores of a node for a pod, 0 to 100 per plugin, with kube-scheduler's weights.

This module has the plugins that depend on one node only; topology spread and inter-pod affinity are
in `inter_pod_affinity`. Source: kube-scheduler's default plugins and their weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.api.nodes import matches_term, tolerates
from moorage.scheduler.nodes import NodeInfo
from moorage.scheduler.query import PodQuery

TAINT_WEIGHT = 3
NODE_AFFINITY_WEIGHT = 2
SPREAD_WEIGHT = 2
INTER_POD_AFFINITY_WEIGHT = 2

_MEBIBYTE = 1024 * 1024
_SMALL_IMAGES = 23 * _MEBIBYTE
_LARGE_IMAGE = 1000 * _MEBIBYTE


def least_allocated(query: PodQuery, node: NodeInfo) -> int:
    """Score by the share of CPU and memory left free with the pod added (NodeResourcesFit).

    Containers without requests count with default amounts.
    """
    cpu = _free_share(node.allocatable.get("cpu", 0), node.shown_cpu_milli + query.shown_cpu_milli)
    memory = _free_share(
        node.allocatable.get("memory", 0), node.shown_memory_bytes + query.shown_memory_bytes
    )
    return _mean([share for share in (cpu, memory) if share is not None])


def _free_share(has: int, used: int) -> int | None:
    if has == 0:
        return None
    return max(0, has - used) * 100 // has


def _mean(shares: list[int]) -> int:
    return sum(shares) // len(shares) if shares else 0


def balanced(query: PodQuery, node: NodeInfo) -> int:
    """Score by whether the pod makes CPU and memory use more even; 75 means no change.

    Returns 0 for a pod that requests neither. (NodeResourcesBalancedAllocation)
    """
    if not query.cpu_milli and not query.memory_bytes:
        return 0
    cpu, memory = node.used.get("cpu", 0), node.used.get("memory", 0)
    after = _evenness(node.allocatable, cpu + query.cpu_milli, memory + query.memory_bytes)
    return 50 + int((50 + after - _evenness(node.allocatable, cpu, memory)) / 2)


def _evenness(allocatable: Mapping[str, int], cpu: int, memory: int) -> int:
    has_cpu, has_memory = allocatable.get("cpu", 0), allocatable.get("memory", 0)
    if not has_cpu or not has_memory:
        return 100
    apart = abs(min(1.0, cpu / has_cpu) - min(1.0, memory / has_memory))
    return int((1 - apart / 2) * 100)


def image_locality(
    query: PodQuery, node: NodeInfo, spread: Mapping[str, int], node_count: int
) -> int:
    """Score by the size of the pod's images on the node; an image on few nodes counts less."""
    if not node.images:
        return 0
    present = sum(
        int(node.images[image] * (spread[image] / node_count))
        for image in query.images
        if image in node.images
    )
    most = _LARGE_IMAGE * max(query.container_count, 1)
    counted = min(max(present, _SMALL_IMAGES), most)
    return 100 * (counted - _SMALL_IMAGES) // (most - _SMALL_IMAGES)


def intolerable_soft_taints(query: PodQuery, node: NodeInfo) -> int:
    """Count the PreferNoSchedule taints that the pod does not tolerate."""
    tolerations = query.soft_tolerations
    return sum(
        1
        for taint in node.soft_taints
        if not any(tolerates(toleration, taint) for toleration in tolerations)
    )


def preferred_weight(query: PodQuery, node: NodeInfo) -> int:
    """Sum the weights of the pod's preferred node affinity terms that match the node."""
    return sum(
        wish.weight for wish in query.preferred_nodes if matches_term(wish.preference, node.node)
    )
