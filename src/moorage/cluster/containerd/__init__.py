"""A private containerd for one cluster: planned, run, found again, taken off the machine."""

from moorage.cluster.containerd.life import EngineStartError, PrivateContainerd
from moorage.cluster.containerd.paths import EnginePaths
from moorage.cluster.containerd.plan import EnginePlan, NoEngineError, plan_engine, prepare_host
from moorage.cluster.containerd.sweep import LeftoverError
from moorage.cluster.containerd.teardown import sweep, tear_down

__all__ = [
    "EnginePaths",
    "EnginePlan",
    "EngineStartError",
    "LeftoverError",
    "NoEngineError",
    "PrivateContainerd",
    "plan_engine",
    "prepare_host",
    "sweep",
    "tear_down",
]
