"""Equivalence cache: the feasible nodes of one pod template, kept between pods.

A thousand replicas need the same filters and scores, and between two of them one node has changed.
The cache keeps each node's result and score in a heap, and recomputes only the nodes that changed:
the cost of placing a pod does not grow with the number of nodes.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from moorage.scheduler import scores
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.filters import STATIC_FILTERS, Rejection, has_room
from moorage.scheduler.inter_pod_affinity import InterPodAffinity
from moorage.scheduler.messages import histogram
from moorage.scheduler.nodes import NodeInfo
from moorage.scheduler.query import PodQuery


@dataclass(frozen=True, slots=True)
class _Standing:
    """Results that depend on the node object alone: a rejection, or raw scores."""

    version: int
    rejection: Rejection | None
    soft_taints: int = 0
    preference: int = 0


@dataclass(slots=True)
class Remembered:
    """The last failed attempt of a template, valid while the cluster generation is the same."""

    generation: int
    rejections: dict[str, Rejection]
    reasons: Counter[str]
    rejected_by: frozenset[str]
    preemption_messages: dict[tuple[int, str], str] = field(default_factory=dict)


def remember(generation: int, rejections: dict[str, Rejection]) -> Remembered:
    """Summarize the rejections of all nodes: a count per reason and the set of filters."""
    return Remembered(
        generation,
        rejections,
        histogram(rejections.values()),
        frozenset(rejection.filter for rejection in rejections.values()),
    )


class EquivalenceCache:
    """The feasible nodes of one template and their scores. Call `refresh` before each use."""

    def __init__(
        self,
        query: PodQuery,
        state: ClusterState,
        cross: InterPodAffinity | None,
        rng: random.Random,
    ) -> None:
        self.query = query
        self.cross = cross
        self.local: dict[str, int] = {}
        self.failure: Remembered | None = None
        self._state = state
        self._rng = rng
        self._seen = -1
        self._standings: dict[str, _Standing] = {}
        self._heap: list[tuple[int, float, int, str]] = []
        self._stamps: dict[str, int] = {}
        self._stamp = 0
        self._most_soft_taints = 0
        self._most_preference = 0

    def refresh(self) -> None:
        """Apply the changes of the cluster state since the last call.

        Hot path: some 5 µs a changed node (bench/scheduler.py).
        """
        if self.cross is not None:
            self.cross.refresh()
        changed = None if self._seen < 0 else self._state.changed_since(self._seen)
        if changed is None or not self._update(changed):
            self._rebuild()
        self._seen = self._state.generation

    def standing(self, node: NodeInfo) -> _Standing:
        """Return the static filters' result for the node, recomputed if its object changed."""
        known = self._standings.get(node.name)
        if known is None or known.version != node.static_version:
            known = self._standings[node.name] = self._stand(node)
        return known

    def best(self, is_free: Callable[[str], bool] | None) -> str | None:
        """Return the feasible node of highest score, at random among equals; None without one.

        Nodes for which `is_free` returns False (reserved for a nominated pod) are skipped.
        """
        heap, stamps = self._heap, self._stamps
        aside: list[tuple[int, float, int, str]] = []
        rejection = None
        while heap:
            entry = heap[0]
            if stamps.get(entry[3]) != entry[2]:
                heapq.heappop(heap)
            elif is_free is not None and not is_free(entry[3]):
                aside.append(heapq.heappop(heap))
            else:
                rejection = entry[3]
                break
        for entry in aside:
            heapq.heappush(heap, entry)
        return rejection

    def _update(self, changed: list[str]) -> bool:
        """Recompute the changed nodes.

        Returns False if a node exceeds a maximum that scores are normalized by: then all must be
        recomputed.
        """
        nodes = self._state.nodes
        for name in changed:
            node = nodes.get(name)
            if node is None:
                self._standings.pop(name, None)
                self._drop(name)
                continue
            standing = self.standing(node)
            if (
                standing.soft_taints > self._most_soft_taints
                or standing.preference > self._most_preference
            ):
                return False
            self._settle(node, standing)
        if len(self._heap) > 4 * len(self.local) + 64:
            self._heap = [entry for entry in self._heap if self._stamps.get(entry[3]) == entry[2]]
            heapq.heapify(self._heap)
        return True

    def _rebuild(self) -> None:
        nodes = self._state.nodes
        self._heap.clear()
        self._stamps.clear()
        self.local.clear()
        self._standings = {name: self.standing(node) for name, node in nodes.items()}
        open_to_us = [
            standing for standing in self._standings.values() if standing.rejection is None
        ]
        self._most_soft_taints = max((standing.soft_taints for standing in open_to_us), default=0)
        self._most_preference = max((standing.preference for standing in open_to_us), default=0)
        for name, node in nodes.items():
            self._settle(node, self._standings[name])

    def _stand(self, node: NodeInfo) -> _Standing:
        query, version = self.query, node.static_version
        for check in STATIC_FILTERS:
            rejection = check(query, node)
            if rejection is not None:
                return _Standing(version, rejection)
        return _Standing(
            version,
            None,
            scores.intolerable_soft_taints(query, node) if node.soft_taints else 0,
            scores.preferred_weight(query, node) if query.preferred_nodes else 0,
        )

    def _settle(self, node: NodeInfo, standing: _Standing) -> None:
        if standing.rejection is not None or not has_room(self.query, node):
            self._drop(node.name)
            return
        score = self._score(node, standing)
        self.local[node.name] = score
        self._stamp += 1
        self._stamps[node.name] = self._stamp
        heapq.heappush(self._heap, (-score, self._rng.random(), self._stamp, node.name))

    def _drop(self, name: str) -> None:
        self.local.pop(name, None)
        self._stamps.pop(name, None)

    def _score(self, node: NodeInfo, standing: _Standing) -> int:
        query, state = self.query, self._state
        score = (
            scores.least_allocated(query, node)
            + scores.balanced(query, node)
            + scores.image_locality(query, node, state.image_spread, len(state.nodes))
        )
        if self._most_soft_taints:
            tolerable = 100 - 100 * standing.soft_taints // self._most_soft_taints
            score += scores.TAINT_WEIGHT * tolerable
        if self._most_preference:
            score += scores.NODE_AFFINITY_WEIGHT * (
                100 * standing.preference // self._most_preference
            )
        return score
