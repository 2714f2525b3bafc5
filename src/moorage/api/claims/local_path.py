"""Volumes that Moorage provisions: directories of a node, known by a handle and never by a path.

A volume has the source `csi` with this driver and the uid of its claim as handle; no CSI driver is
involved. The node agent derives the directory from the handle, so no path comes from the API.
See `docs/decisions/082-volumes-by-handle.md`.
"""

from __future__ import annotations

import re

from moorage.api.names import label_value_errors
from moorage.api.node_labels import HOSTNAME
from moorage.api.persistent_volumes import PersistentVolume

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
