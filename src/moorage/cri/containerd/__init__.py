"""Configuration of a containerd that tests and benchmarks start beside the engine."""

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
