"""Annotations by which controller, scheduler and provisioners agree on a binding.

Source: API docs "Well-Known Labels, Annotations and Taints".
"""

from __future__ import annotations

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""On a claim: it has been bound once; a volume that it lacks now is lost."""

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""On a claim or volume: its reference to the other was set by a controller, not by a user."""

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim: the node that the scheduler wants its volume on."""

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
"""On a volume: the provisioner that made it, which also removes it."""

STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
"""On a claim: the provisioner that is to make its volume."""

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
"""On a claim or volume: its class; takes precedence over the field."""

BETA_MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
"""On a volume: options of its mounts, before there was a field for them."""

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
BETA_DEFAULT_CLASS = "storageclass.beta.kubernetes.io/is-default-class"

YES = "yes"
"""The value of the annotations that have a meaning by their presence alone."""
