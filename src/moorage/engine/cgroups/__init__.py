"""The cgroups of sandboxes and containers: their names, what they use, their end."""

from moorage.engine.cgroups.life import ContainerCgroups
from moorage.engine.cgroups.paths import CgroupPath, container_cgroup
from moorage.engine.cgroups.usage import Accounts, Usage, UsageReader
from moorage.handlers.definition import CgroupDriver as Driver

__all__ = [
    "Accounts",
    "CgroupPath",
    "ContainerCgroups",
    "Driver",
    "Usage",
    "UsageReader",
    "container_cgroup",
]
