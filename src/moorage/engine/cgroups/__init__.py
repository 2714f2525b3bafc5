"""The cgroups of sandboxes and containers: their names, what they use, their end."""

from moorage.engine.cgroups.life import ContainerCgroups
from moorage.engine.cgroups.paths import DEFAULT_PARENT, CgroupPath, container_cgroup
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
