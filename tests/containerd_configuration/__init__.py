"""Configuration of a containerd that tests and benchmarks start beside our engine."""

from moorage.engine.handlers.runtimes import RUNC_SHIM
from tests.containerd_configuration.configuration import (
    NATIVE,
    OVERLAYFS,
    Configuration,
    RuntimeTable,
    configuration_version,
    write_configuration,
)
from tests.containerd_configuration.registries import hosts_files

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
