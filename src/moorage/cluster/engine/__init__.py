"""The engine of one cluster: planned from the host's facts, and removed from the host again."""

from moorage.cluster.engine.external import end_pods
from moorage.cluster.engine.paths import ClusterEnginePaths
from moorage.cluster.engine.plan import (
    EnginePlan,
    NoEngineError,
    cgroup_root,
    engine_paths,
    plan_engine,
    pod_network,
    prepare_host,
)
from moorage.cluster.engine.teardown import sweep, tear_down
from moorage.cluster.engine.usage import check_engine_change, engine_in_use, note_engine

__all__ = [
    "ClusterEnginePaths",
    "EnginePlan",
    "NoEngineError",
    "cgroup_root",
    "check_engine_change",
    "end_pods",
    "engine_in_use",
    "engine_paths",
    "note_engine",
    "plan_engine",
    "pod_network",
    "prepare_host",
    "sweep",
    "tear_down",
]
