"""Cgroups of sandboxes and containers: paths, resource usage, removal."""

from moorage.engine.cgroups.control import (
    DEFAULT_PARENT,
    CgroupPath,
    ContainerCgroups,
    container_cgroup,
)
from moorage.engine.cgroups.usage import Accounts, Usage, UsageReader

__all__ = [
    "DEFAULT_PARENT",
    "Accounts",
    "CgroupPath",
    "ContainerCgroups",
    "Usage",
    "UsageReader",
    "container_cgroup",
]
