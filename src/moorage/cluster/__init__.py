"""Cluster assembly: certificates, processes, the container engine, and the `Cluster` object."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.cluster.cluster import Cluster
    from moorage.cluster.errors import (
        CannotRunPodsError,
        ClusterError,
        LeftoverError,
        NotRunningError,
        StartError,
        StopError,
    )
    from moorage.cluster.settings import Choices, Settings, SettingsError
    from moorage.cluster.supervision.supervise import PartStatus
    from moorage.cluster.supervision.supervisor import AlreadyRunningError

__all__ = [
    "AlreadyRunningError",
    "CannotRunPodsError",
    "Choices",
    "Cluster",
    "ClusterError",
    "LeftoverError",
    "NotRunningError",
    "PartStatus",
    "Settings",
    "SettingsError",
    "StartError",
    "StopError",
]

# Each name's module, imported at its first use: a part of a cluster must not load the others.
_MODULES = {
    "AlreadyRunningError": "supervision.supervisor",
    "CannotRunPodsError": "errors",
    "Choices": "settings",
    "Cluster": "cluster",
    "ClusterError": "errors",
    "LeftoverError": "errors",
    "NotRunningError": "errors",
    "PartStatus": "supervision.supervise",
    "Settings": "settings",
    "SettingsError": "settings",
    "StartError": "errors",
    "StopError": "errors",
}


def __getattr__(name: str) -> object:
    """Import a public name at its first use. Raises AttributeError for any other."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
