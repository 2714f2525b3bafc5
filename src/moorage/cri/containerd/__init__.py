"""A containerd of Moorage's own: what its configuration says."""

from moorage.cri.containerd.configuration import (
    NATIVE,
    OVERLAYFS,
    RUNC_SHIM,
    Configuration,
    RuntimeTable,
    configuration_version,
    write_configuration,
)
from moorage.cri.containerd.registries import hosts_files

__all__ = [
    "NATIVE",
    "OVERLAYFS",
    "RUNC_SHIM",
    "Configuration",
    "RuntimeTable",
    "configuration_version",
    "hosts_files",
    "write_configuration",
]
