"""Topology of volumes: on which nodes they can be used.

Source: core/v1 `VolumeNodeAffinity`, storage/v1 `allowedTopologies`; kube-scheduler VolumeZone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moorage.api.meta import ObjectMeta
from moorage.api.node_affinity import matches_selector
from moorage.api.node_labels import HOSTNAME
from moorage.api.nodes import Node
from moorage.api.persistent_volumes import PersistentVolume, TopologySelectorTerm

_BETA = "failure-domain.beta.kubernetes.io/"
_STABLE = "topology.kubernetes.io/"
_ZONE_LABELS = (f"{_BETA}zone", f"{_BETA}region", f"{_STABLE}zone", f"{_STABLE}region")
_SEPARATOR = "__"


def is_reachable(volume: PersistentVolume, node_labels: Mapping[str, str]) -> bool:
    """Return whether the volume's node affinity, if any, matches a node with these labels."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    node = Node(metadata=ObjectMeta(labels=dict(node_labels)))
    return matches_selector(affinity.required, node)


def only_hosts(volume: PersistentVolume) -> tuple[str, ...] | None:
    """Return the hosts that alone can use the volume; None if its affinity says it otherwise.

    Local volumes name their host and nothing else: they are then found by it.
    """
    affinity = volume.spec.node_affinity
    terms = (
        ()
        if affinity is None or affinity.required is None
        else (affinity.required.node_selector_terms)
    )
    if len(terms) != 1 or terms[0].match_fields or len(terms[0].match_expressions) != 1:
        return None
    (requirement,) = terms[0].match_expressions
    is_host = requirement.key == HOSTNAME and requirement.operator == "In"
    return tuple(dict.fromkeys(requirement.values)) if is_host else None


def matches_topologies(
    terms: Iterable[TopologySelectorTerm], node_labels: Mapping[str, str]
) -> bool:
    """Return whether a class provisions volumes for such a node; without terms for any."""
    listed = tuple(terms)
    return not listed or any(
        bool(term.match_label_expressions)
        and all(
            node_labels.get(requirement.key) in requirement.values
            for requirement in term.match_label_expressions
        )
        for term in listed
    )


def zone_conflicts(volume: PersistentVolume, node_labels: Mapping[str, str]) -> bool:
    """Return whether the volume's labels name zones or regions that are not the node's.

    A node without any such label is in every zone.
    """
    if not any(label in node_labels for label in _ZONE_LABELS):
        return False
    for label in _ZONE_LABELS:
        text = volume.metadata.labels.get(label)
        if text is None:
            continue
        place = node_labels.get(label, node_labels.get(label.replace(_BETA, _STABLE)))
        if place is None or place not in text.split(_SEPARATOR):
            return True
    return False
