"""Storage classes of claims and volumes; the default. Source: API docs "Storage Classes"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from moorage.api.claims.annotations import BETA_CLASS, BETA_DEFAULT_CLASS, DEFAULT_CLASS
from moorage.api.meta import ObjectMeta
from moorage.api.names import label_value_errors
from moorage.api.nodes import HOSTNAME, Node, matches_selector
from moorage.api.persistent_volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)

# Volumes that Moorage provisions: directories of a node, known by a handle and never by a path.
#
# A volume has the source `csi` with this driver and the uid of its claim as handle; no CSI driver
# is involved. The node agent derives the directory from the handle, so no path comes from the
# API. See `docs/decisions/082-volumes-by-handle.md`.

PROVISIONER = "runtime.moorage.dev/local-path"
"""Provisioner of the class, and the mark of its volumes."""
DRIVER = "local-path.runtime.moorage.dev"
NODE_LABEL = "runtime.moorage.dev/node"
"""Label of a volume: the name of the node that has its directory."""
FINALIZER = "runtime.moorage.dev/local-path"
"""Held by a volume until its node has removed the directory."""

_HANDLE = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def handle_of(volume: PersistentVolume) -> str | None:
    """Return the handle of a volume that Moorage provisioned; None for any other.

    Raises ValueError for a handle that no claim's uid can be.
    """
    source = volume.spec.csi
    if source is None or source.driver != DRIVER:
        return None
    if not _HANDLE.fullmatch(source.volume_handle):
        raise ValueError(f"volume handle {source.volume_handle!r} is not the uid of a claim")
    return source.volume_handle


def node_problem(node_name: str, hostname: str) -> str:
    """Return why no volume can be made on a node, "" if one can."""
    if not hostname:
        return f'node "{node_name}" has no label {HOSTNAME}'
    if label_value_errors(node_name):
        return f'the name of node "{node_name}" is too long for the label {NODE_LABEL}'
    return ""


# Topology of volumes: on which nodes they can be used.
#
# Source: core/v1 `VolumeNodeAffinity`, storage/v1 `allowedTopologies`; kube-scheduler VolumeZone.

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


WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of classes whose volumes an administrator makes."""


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """Return the name of the claim's class, "" for none."""
    named = claim.metadata.annotations.get(BETA_CLASS)
    return named if named is not None else claim.spec.storage_class_name or ""


def class_of_volume(volume: PersistentVolume) -> str:
    """Return the name of the volume's class, "" for none."""
    named = volume.metadata.annotations.get(BETA_CLASS)
    return named if named is not None else volume.spec.storage_class_name


def names_class(claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim names a class. "" is a choice too: no class at all."""
    return BETA_CLASS in claim.metadata.annotations or claim.spec.storage_class_name is not None


def is_delayed(storage_class: StorageClass | None) -> bool:
    """Return whether claims of the class are bound once a pod that uses them is scheduled."""
    return storage_class is not None and (
        storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    )


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class: of several the newest, of equally old ones the first by name."""
    marked = sorted(filter(_is_default, classes), key=lambda entry: entry.metadata.name)
    return max(marked, key=lambda entry: entry.metadata.creation_timestamp or "", default=None)


def _is_default(storage_class: StorageClass) -> bool:
    return is_marked_default(storage_class.metadata.annotations)


def is_marked_default(annotations: Mapping[str, str]) -> bool:
    """Return whether annotations of a class make it the default one."""
    return "true" in (annotations.get(DEFAULT_CLASS), annotations.get(BETA_DEFAULT_CLASS))
