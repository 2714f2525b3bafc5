"""Provisioning: the volume that Moorage makes for a claim, and why it may make none. Pure.

Source: kube-controller-manager `provisionClaimOperation`; see `api/claims/local_path.py`.
"""

from __future__ import annotations

from typing import Any

from moorage.api.claims.annotations import BOUND_BY_CONTROLLER, PROVISIONED_BY, SELECTED_NODE, YES
from moorage.api.claims.binding import FILESYSTEM, claim_reference
from moorage.api.claims.classes import (
    DRIVER,
    FINALIZER,
    NODE_LABEL,
    PROVISIONER,
    matches_topologies,
    node_problem,
)
from moorage.api.nodes import HOSTNAME
from moorage.api.persistent_volumes import PersistentVolumeClaim, StorageClass
from moorage.controllers.objects import Node

_DELETE = "Delete"


class ProvisioningError(Exception):
    """No volume can be made for a claim; with `may_move` another node may do."""

    def __init__(self, message: str, *, may_move: bool = False) -> None:
        super().__init__(message)
        self.may_move = may_move


def volume_name(claim: PersistentVolumeClaim) -> str:
    """Return the name of the volume that is made for a claim."""
    return f"pvc-{claim.metadata.uid}"


def is_internal(storage_class: StorageClass) -> bool:
    """Return whether Moorage itself provisions the volumes of a class."""
    return storage_class.provisioner == PROVISIONER


def new_volume(
    claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node | None
) -> dict[str, Any]:
    """Return the volume for a claim on the node that was selected for it.

    Raises ProvisioningError with the reason for users.
    """
    selected = claim.metadata.annotations.get(SELECTED_NODE, "")
    if problem := _refusal(claim, storage_class):
        raise ProvisioningError(problem)
    if not selected:
        raise ProvisioningError(
            f"no node was specified: classes of provisioner {PROVISIONER} need "
            "volumeBindingMode WaitForFirstConsumer"
        )
    if node is None:
        raise ProvisioningError(f'node "{selected}" not found', may_move=True)
    labels = node.metadata.labels
    hostname = labels.get(HOSTNAME, "")
    if problem := node_problem(selected, hostname):
        raise ProvisioningError(problem, may_move=True)
    if not matches_topologies(storage_class.allowed_topologies, labels):
        raise ProvisioningError(
            f'node "{selected}" does not match the allowed topologies', may_move=True
        )
    return {
        "metadata": {
            "name": volume_name(claim),
            "labels": {NODE_LABEL: selected},
            "annotations": {PROVISIONED_BY: PROVISIONER, BOUND_BY_CONTROLLER: YES},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "accessModes": list(claim.spec.access_modes),
            "capacity": {"storage": claim.spec.resources.requests["storage"]},
            "claimRef": claim_reference(claim),
            "csi": {"driver": DRIVER, "volumeHandle": claim.metadata.uid},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [
                    {"key": HOSTNAME, "operator": "In", "values": [hostname]}]}]}},
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or _DELETE,
            "storageClassName": storage_class.metadata.name,
            "volumeMode": FILESYSTEM,
        },
    }  # fmt: skip


def _refusal(claim: PersistentVolumeClaim, storage_class: StorageClass) -> str:
    """Return the property of the claim or its class that these volumes lack, "" for none."""
    if (claim.spec.volume_mode or FILESYSTEM) != FILESYSTEM:
        return f"{PROVISIONER} does not support block volume provisioning"
    if claim.spec.data_source is not None or claim.spec.data_source_ref is not None:
        return (
            f'plugin "{PROVISIONER}" is not a CSI plugin. Only CSI plugin can provision a claim '
            "with a datasource"
        )
    if claim.spec.selector is not None:
        return "claim.Spec.Selector is not supported for dynamic provisioning"
    if "storage" not in claim.spec.resources.requests:
        return "the claim requests no storage"
    if storage_class.mount_options:
        return (
            "Mount options are not supported by the provisioner but StorageClass "
            f'"{storage_class.metadata.name}" has mount options '
            f"[{' '.join(storage_class.mount_options)}]"
        )
    shared = {"ReadWriteMany", "ReadOnlyMany"} & set(claim.spec.access_modes)
    if shared:
        return f"the volumes of {PROVISIONER} are of one node: {', '.join(sorted(shared))} refused"
    return ""
