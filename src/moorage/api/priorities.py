"""Priority classes. Source: scheduling.k8s.io/v1."""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta


class PriorityClass(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
