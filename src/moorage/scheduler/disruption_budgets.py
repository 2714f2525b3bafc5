"""Disruption budgets, as preemption sees them: it avoids victims whose budget is used up.

It may still take one where no other victims make room: budgets protect from voluntary disruptions.
Source: kube-scheduler DefaultPreemption `filterPodsWithPDBViolation`.
"""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api import labels
from moorage.api.disruptions import PodDisruptionBudget
from moorage.scheduler.nodes import Placed


class DisruptionBudgets:
    """The budgets of all namespaces. Not for concurrent use."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, tuple[labels.Selector, PodDisruptionBudget]]] = {}

    def put(self, budget: PodDisruptionBudget) -> None:
        """Add a budget or replace it. One that selects everything or nothing is left out."""
        meta, stated = budget.metadata, budget.spec.selector
        own = self._by_namespace.setdefault(meta.namespace, {})
        own.pop(meta.name, None)
        try:
            selector = labels.from_object(stated)
        except ValueError:
            return
        if stated:
            own[meta.name] = (selector, budget)

    def remove(self, budget: PodDisruptionBudget) -> None:
        """Forget a budget."""
        meta = budget.metadata
        own = self._by_namespace.get(meta.namespace, {})
        own.pop(meta.name, None)
        if not own:
            self._by_namespace.pop(meta.namespace, None)

    def violated_by(self, pods: Iterable[Placed]) -> frozenset[str]:
        """Return the keys of those pods whose disruption, after that of those before, violates a
        budget. Pods without labels violate none."""
        if not self._by_namespace:
            return frozenset()
        left: dict[tuple[str, str], int] = {}
        violating: set[str] = set()
        for placed in pods:
            meta = placed.pod.metadata
            if not meta.labels:
                continue
            for name, (selector, budget) in self._by_namespace.get(meta.namespace, {}).items():
                if meta.name in budget.status.disrupted_pods:
                    continue  # It is counted already.
                if not selector.matches(meta.labels):
                    continue
                key = (meta.namespace, name)
                left[key] = left.get(key, budget.status.disruptions_allowed) - 1
                if left[key] < 0:
                    violating.add(placed.key)
        return frozenset(violating)
