"""Defaults of volume sources that pods and PersistentVolumes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorage.apiserver.registry.kind import Obj


def default_volume_source(holder: Obj) -> None:
    """Set the API defaults of the sources that a volume or its specification has."""
    for source, fill in SOURCE_DEFAULTS.items():
        if source in holder:
            fill(holder[source])


def _with(**values: Any) -> Callable[[Obj], None]:
    def fill(source: Obj) -> None:
        for key, value in values.items():
            source.setdefault(key, value)

    return fill


SOURCE_DEFAULTS: dict[str, Callable[[Obj], None]] = {
    "hostPath": _with(type=""),
    "iscsi": _with(iscsiInterface="default"),
    "rbd": _with(pool="rbd", user="admin", keyring="/etc/ceph/keyring"),
    "azureDisk": _with(cachingMode="ReadWrite", kind="Shared", fsType="ext4", readOnly=False),
    "scaleIO": _with(storageMode="ThinProvisioned", fsType="xfs"),
}
"""Volume source → what it gets where nothing is said."""
