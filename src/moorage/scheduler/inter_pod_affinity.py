"""Inter-pod affinity and topology spread: filters and scores that depend on other nodes' pods.

For one pod template the cluster is summed up in tables, topology value → count. Each node adds its
own share; when a node changes, only its share is recomputed. Preemption evaluates a changed copy of
a node in the same way. Source: kube-scheduler InterPodAffinity and PodTopologySpread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from moorage.api import labels
from moorage.api.labels import Labels
from moorage.api.nodes import HOSTNAME, matches_node
from moorage.api.pods import Pod
from moorage.scheduler.cluster_state import ZONE, ClusterState
from moorage.scheduler.filters import INTER_POD_AFFINITY, TOPOLOGY_SPREAD, Rejection, taints
from moorage.scheduler.nodes import NodeInfo, Placed
from moorage.scheduler.query import PodQuery
from moorage.scheduler.terms import Spread, Term, WeightedTerm

Table = dict[str, int]
_Share = list[tuple[Table, str, int]]

_HARD_AFFINITY_WEIGHT = 1
"""Score weight of an existing pod's required affinity to this pod (hardPodAffinityWeight)."""

DEFAULT_SPREAD = (
    Spread(HOSTNAME, max_skew=3, min_domains=1, selector=labels.EVERYTHING),
    Spread(ZONE, max_skew=5, min_domains=1, selector=labels.EVERYTHING),
)
"""Default constraints for pods of a controller that declare none. kube-scheduler selects the pods
by the selectors of services and controllers; here they are counted by the controller's uid."""

_AFFINITY = Rejection(INTER_POD_AFFINITY, ("node(s) didn't match pod affinity rules",))
_ANTI_AFFINITY = Rejection(
    INTER_POD_AFFINITY, ("node(s) didn't match pod anti-affinity rules",), is_resolvable=True
)
_EXISTING = Rejection(
    INTER_POD_AFFINITY,
    ("node(s) didn't satisfy existing pods anti-affinity rules",),
    is_resolvable=True,
)
_SKEWED = Rejection(
    TOPOLOGY_SPREAD,
    ("node(s) didn't match pod topology spread constraints",),
    is_resolvable=True,
)
_UNLABELLED = Rejection(
    TOPOLOGY_SPREAD,
    ("node(s) didn't match pod topology spread constraints (missing required label)",),
)


class InterPodAffinity:
    """The tables of one pod template. Call `refresh` before each use."""

    def __init__(self, pod: Pod, query: PodQuery, state: ClusterState) -> None:
        self._namespace = pod.metadata.namespace
        self._labels = pod.metadata.labels
        self._query = query
        self._terms = query.terms
        self._state = state
        self._seen = -1
        self._shares: dict[str, _Share] = {}
        is_unspoken = bool(query.owner_uid) and not query.spec.topology_spread_constraints
        self._soft = DEFAULT_SPREAD if is_unspoken else self._terms.soft_spread
        self._is_default_spread = is_unspoken
        self._clear()

    def _clear(self) -> None:
        self._shares.clear()
        self._hard_counts: list[Table] = [{} for _ in self._terms.hard_spread]
        self._hard_domains: list[Table] = [{} for _ in self._terms.hard_spread]
        self._soft_counts: list[Table] = [{} for _ in self._soft]
        self._near: dict[str, Table] = {}
        self._far: list[Table] = [{} for _ in self._terms.required_anti]
        self._forbidden: dict[str, Table] = {}
        self._preferred: dict[str, Table] = {}
        self._limits: list[int | None] = [None] * len(self._terms.hard_spread)

    def refresh(self) -> None:
        """Recompute the shares of nodes that changed since the last call."""
        state = self._state
        changed = state.changed_since(self._seen)
        if changed is None or self._seen < 0:
            self._clear()
            changed = list(state.nodes)
        for name in changed:
            self.put(name, state.nodes.get(name))
        self._seen = state.generation

    def put(self, name: str, node: NodeInfo | None) -> None:
        """Replace a node's share; None removes it. Preemption passes a changed copy of the node."""
        for table, value, count in self._shares.pop(name, ()):
            _add(table, value, -count)
        if node is not None:
            share = self._shares[name] = list(self._share_of(node))
            for table, value, count in share:
                _add(table, value, count)
        if self._limits:
            self._limits = [None] * len(self._limits)

    @property
    def can_reject(self) -> bool:
        terms = self._terms
        return bool(
            terms.hard_spread or terms.required or terms.required_anti or any(
                self._forbidden.values()
            )
        )  # fmt: skip

    @property
    def can_score(self) -> bool:
        return bool(self._soft) or any(self._preferred.values())

    # shares

    def _share_of(self, node: NodeInfo) -> Iterator[tuple[Table, str, int]]:
        yield from self._spread_share(node)
        if node.labels:
            yield from self._own_terms_share(node)
            yield from self._existing_terms_share(node)

    def _spread_share(self, node: NodeInfo) -> Iterator[tuple[Table, str, int]]:
        hard = self._terms.hard_spread
        if hard and _has_keys(node, hard):
            for index, spread in enumerate(hard):
                if self._is_included(spread, node):
                    value = node.labels[spread.topology_key]
                    yield self._hard_domains[index], value, 1
                    yield self._hard_counts[index], value, self._matching(spread, node)
        if self._soft and (self._is_default_spread or _has_keys(node, self._soft)):
            for index, spread in enumerate(self._soft):
                soft_value = node.labels.get(spread.topology_key)
                if soft_value is not None and self._is_included(spread, node):
                    yield self._soft_counts[index], soft_value, self._matching(spread, node)

    def _is_included(self, spread: Spread, node: NodeInfo) -> bool:
        if spread.honors_affinity and not matches_node(self._query.spec, node.node):
            return False
        return not spread.honors_taints or taints(self._query, node) is None

    def _matching(self, spread: Spread, node: NodeInfo) -> int:
        if self._is_default_spread:
            return node.owners.get(self._query.owner_uid, 0)
        return sum(
            1
            for pod in node.pods.values()
            if pod.pod.metadata.namespace == self._namespace
            and pod.pod.metadata.deletion_timestamp is None
            and spread.selector.matches(pod.pod.metadata.labels)
        )

    def _own_terms_share(self, node: NodeInfo) -> Iterator[tuple[Table, str, int]]:
        terms = self._terms
        if not terms.has_affinity:
            return
        pods = node.pods.values()
        if terms.required:
            together = sum(1 for pod in pods if all(self._means(t, pod) for t in terms.required))
            for term in terms.required:
                yield from _at(self._near, term, node, together)
        for table, term in zip(self._far, terms.required_anti, strict=True):
            count = sum(1 for pod in pods if self._means(term, pod))
            value = node.labels.get(term.topology_key)
            if count and value is not None:
                yield table, value, count
        for wish, sign in _signed(terms.preferred, terms.preferred_anti):
            count = sum(1 for pod in pods if self._means(wish.term, pod))
            yield from _at(self._preferred, wish.term, node, sign * wish.weight * count)

    def _existing_terms_share(self, node: NodeInfo) -> Iterator[tuple[Table, str, int]]:
        for other in node.affine.values():
            terms = other.query.terms
            for term in terms.required_anti:
                if self._matches_pod(term):
                    yield from _at(self._forbidden, term, node, 1)
            for term in terms.required:
                if self._matches_pod(term):
                    yield from _at(self._preferred, term, node, _HARD_AFFINITY_WEIGHT)
            for wish, sign in _signed(terms.preferred, terms.preferred_anti):
                if self._matches_pod(wish.term):
                    yield from _at(self._preferred, wish.term, node, sign * wish.weight)

    def _means(self, term: Term, other: Placed) -> bool:
        meta = other.pod.metadata
        return term.matches(
            meta.namespace, meta.labels, self._state.namespace_labels(meta.namespace)
        )

    def _matches_pod(self, term: Term) -> bool:
        return term.matches(
            self._namespace, self._labels, self._state.namespace_labels(self._namespace)
        )

    # filter

    def rejection(self, node: NodeInfo) -> Rejection | None:
        """Return the first rejection of the node; None if it passes.

        Order: topology spread, affinity, anti-affinity, existing pods' anti-affinity.
        """
        if self._terms.hard_spread:
            rejection = self._spread_rejection(node)
            if rejection is not None:
                return rejection
        return self._affinity_rejection(node)

    def rejections(self, node: NodeInfo) -> list[Rejection]:
        """Return the rejections of both filters, for explanations."""
        rejections = (self._spread_rejection(node), self._affinity_rejection(node))
        return [rejection for rejection in rejections if rejection is not None]

    def _spread_rejection(self, node: NodeInfo) -> Rejection | None:
        for index, spread in enumerate(self._terms.hard_spread):
            value = node.labels.get(spread.topology_key)
            if value is None:
                return _UNLABELLED
            limit = self._limits[index]
            if limit is None:
                limit = self._limits[index] = self._limit(index, spread)
            if self._hard_counts[index].get(value, 0) > limit:
                return _SKEWED
        return None

    def _limit(self, index: int, spread: Spread) -> int:
        """Return the highest count of matching pods at which a domain still accepts this pod."""
        domains, counts = self._hard_domains[index], self._hard_counts[index]
        fewest = 0
        # `min_domains` is at least 1, so `min` never sees an empty table.
        if len(domains) >= spread.min_domains:
            fewest = min(counts.get(value, 0) for value in domains)
        return spread.max_skew + fewest - spread.selector.matches(self._labels)

    def _affinity_rejection(self, node: NodeInfo) -> Rejection | None:
        here = node.labels
        if self._terms.required and not self._is_near(here):
            return _AFFINITY
        for term, table in zip(self._terms.required_anti, self._far, strict=True):
            if here.get(term.topology_key) in table:
                return _ANTI_AFFINITY
        for key, table in self._forbidden.items():
            if here.get(key) in table:
                return _EXISTING
        return None

    def _is_near(self, here: Labels) -> bool:
        terms = self._terms.required
        if any(term.topology_key not in here for term in terms):
            return False
        if all(here[t.topology_key] in self._near.get(t.topology_key, {}) for t in terms):
            return True
        # Without this, the first pod of a group with affinity to itself would never be scheduled.
        return not any(self._near.values()) and all(map(self._matches_pod, terms))

    # score

    def spread_scores(self, nodes: Sequence[NodeInfo]) -> list[int]:
        """Return a score of 0 to 100 per node, higher where fewer matching pods run.

        Hot path: under 1 µs a node (bench/scheduler.py).
        """
        if not self._soft:
            return [0] * len(nodes)
        if self._is_default_spread:
            return _inverted(self._spread_sums(nodes))
        taking_part = [node for node in nodes if _has_keys(node, self._soft)]
        scored = zip(taking_part, _inverted(self._spread_sums(taking_part)), strict=True)
        by_name = {node.name: score for node, score in scored}
        return [by_name.get(node.name, 0) for node in nodes]

    def _spread_sums(self, nodes: Sequence[NodeInfo]) -> list[int]:
        """Return per node the matching pods in its domains, weighted by the number of domains."""
        sums = [0.0] * len(nodes)
        for spread, table in zip(self._soft, self._soft_counts, strict=True):
            key, tolerance = spread.topology_key, spread.max_skew - 1
            values = [node.labels.get(key) for node in nodes]
            domains = len(nodes) if key == HOSTNAME else len(set(values))
            weight = math.log(domains + 2)
            sums = [
                total if value is None else total + table.get(value, 0) * weight + tolerance
                for total, value in zip(sums, values, strict=True)
            ]
        return [int(total + 0.5) for total in sums]

    def affinity_scores(self, nodes: Sequence[NodeInfo]) -> list[int]:
        """Return a score of 0 to 100 per node, from this and the existing pods' preferences."""
        raw = [0] * len(nodes)
        for key, table in self._preferred.items():
            if table:
                raw = [
                    total + table.get(node.labels.get(key, ""), 0)
                    for total, node in zip(raw, nodes, strict=True)
                ]
        most, least = max(raw, default=0), min(raw, default=0)
        if most == least:
            return [0] * len(raw)
        return [int(100 * ((score - least) / (most - least))) for score in raw]


def _inverted(sums: list[int]) -> list[int]:
    """Convert counts to scores of 0 to 100: the smaller the count, the higher the score."""
    most, least = max(sums, default=0), min(sums, default=0)
    if most == 0:
        return [100] * len(sums)
    return [100 * (most + least - total) // most for total in sums]


def _at(
    tables: dict[str, Table], term: Term, node: NodeInfo, count: int
) -> Iterator[tuple[Table, str, int]]:
    value = node.labels.get(term.topology_key)
    if count and value is not None:
        yield tables.setdefault(term.topology_key, {}), value, count


def _signed(
    wanted: Iterable[WeightedTerm], unwanted: Iterable[WeightedTerm]
) -> Iterator[tuple[WeightedTerm, int]]:
    for wish in wanted:
        yield wish, 1
    for wish in unwanted:
        yield wish, -1


def _has_keys(node: NodeInfo, spreads: Iterable[Spread]) -> bool:
    return all(spread.topology_key in node.labels for spread in spreads)


def _add(table: Table, value: str, count: int) -> None:
    total = table.get(value, 0) + count
    if total:
        table[value] = total
    else:
        table.pop(value, None)
