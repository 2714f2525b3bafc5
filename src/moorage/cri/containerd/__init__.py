"""What the configuration of a containerd says, started for tests and measurements beside ours."""

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
