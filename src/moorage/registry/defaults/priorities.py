"""Priority classes."""

from __future__ import annotations

from moorage.registry.kind import Obj


def default_priority_class(priority_class: Obj) -> None:
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")
