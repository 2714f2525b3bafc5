"""Scheduler: filter, score, bind.

A pure core (`cluster_state`, `filters`, `inter_pod_affinity`, `scores`, `equivalence_cache`,
`preemption`, `cycle`) decides over plain values; `loop` feeds it informer events and sends its
decisions to the server. Beyond kube-scheduler it keeps pods off nodes that lack the runtime handler
of their class.
"""

from moorage.scheduler.explain import Explanation, NodeVerdict, explain
from moorage.scheduler.informers import SchedulerInformers
from moorage.scheduler.loop import run_scheduler
from moorage.scheduler.metrics import SchedulerMetrics
from moorage.scheduler.options import DEFAULT_SCHEDULER, SchedulerOptions
from moorage.scheduler.storage_state import StorageState

__all__ = [
    "DEFAULT_SCHEDULER",
    "Explanation",
    "NodeVerdict",
    "SchedulerInformers",
    "SchedulerMetrics",
    "SchedulerOptions",
    "StorageState",
    "explain",
    "run_scheduler",
]
