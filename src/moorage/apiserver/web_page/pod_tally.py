"""Tally of pods: how many each class has by phase, and the first pods of one class.

Of a hundred thousand pods a page shows a few numbers, so that none is kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from moorage.apiserver.web_page.objects import PodRow, PodRowStatus, shortened
from moorage.runtimeclass.handler import is_implicit

NO_CLASS = ""
"""Name under which pods without a class are counted."""
PHASES = ("Pending", "Running", "Succeeded", "Failed")
MOST_PODS = 500
"""Limit on the pods that one page lists."""


class PodTally:
    """Counts pods as they are read. Of the class `listed` it keeps the first `MOST_PODS`."""

    def __init__(self, listed: str | None = None) -> None:
        self._listed = listed
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._pods: list[PodRow] = []

    def add(self, pod: PodRow) -> None:
        """Count a pod."""
        name = class_of(pod)
        phase = pod.status.phase or "Pending"
        # A node may write any words as phases of its pods, each another one.
        self._counts[name][phase if phase in PHASES else "Unknown"] += 1
        if name != self._listed:
            return
        status = PodRowStatus(shortened(pod.status.phase), shortened(pod.status.reason))
        self._pods.append(PodRow(pod.metadata, pod.spec, status))
        if len(self._pods) >= 2 * MOST_PODS:
            self._pods = list(self.first())

    def first(self) -> tuple[PodRow, ...]:
        """Return the pods of the listed class by namespace and name, at most `MOST_PODS`."""
        ordered = sorted(self._pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
        return tuple(ordered[:MOST_PODS])

    def counts(self) -> Mapping[str, Counter[str]]:
        """Return how many pods each class has, by phase."""
        return self._counts


def class_of(pod: PodRow) -> str:
    """Return the name of a pod's class, `NO_CLASS` for the node's default."""
    name = pod.spec.runtime_class_name
    return NO_CLASS if name is None or is_implicit(name) else name
