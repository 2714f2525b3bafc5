"""The machine a cluster runs on: its facts, gathered once."""

from moorage.cluster.host.facts import Disk, Host, Kernel, System, gather
from moorage.cluster.host.tools import CniPlugins, Firewall, Tool
from moorage.linux.cgroups import Cgroups, Layout

__all__ = [
    "Cgroups",
    "CniPlugins",
    "Disk",
    "Firewall",
    "Host",
    "Kernel",
    "Layout",
    "System",
    "Tool",
    "gather",
]
