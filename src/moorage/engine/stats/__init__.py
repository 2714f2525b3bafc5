"""Container and sandbox statistics and metrics of the CRI."""

from moorage.engine.stats.statistics import Statistics
from moorage.engine.stats.subjects import (
    ContainerSubject,
    SandboxSubject,
    SharedCgroup,
    select_containers,
    select_sandboxes,
)

__all__ = [
    "ContainerSubject",
    "SandboxSubject",
    "SharedCgroup",
    "Statistics",
    "select_containers",
    "select_sandboxes",
]
