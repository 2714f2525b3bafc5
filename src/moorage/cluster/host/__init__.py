"""Host inventory of a cluster, gathered once."""

from moorage.cluster.host.facts import Disk, Inventory, gather
from moorage.cluster.host.tools import CniPlugins, Firewall, Tool
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.host import Kernel, System

__all__ = [
    "Cgroups",
    "CniPlugins",
    "Disk",
    "Firewall",
    "Inventory",
    "Kernel",
    "Layout",
    "System",
    "Tool",
    "gather",
]
