"""Cluster state as the scheduler sees it (kube-scheduler's cache), updated on every event.

Pods just placed are *assumed*: they count on their node at once, until the API server shows them
bound or the binding fails. Every change of a node gets a new generation; caches of per-node values
read `changed_since` and recompute only the changed nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from moorage.api import labels
from moorage.api.disruptions import PodDisruptionBudget
from moorage.api.labels import Labels
from moorage.api.nodes import Node
from moorage.api.pods import ENDED_PHASES, Pod
from moorage.runtimeclass.resizing import charged_spec
from moorage.scheduler.nodes import NodeInfo, Placed, offers_differ, placed
from moorage.scheduler.query import PodQuery, QueryCache
from moorage.scheduler.storage_state import StorageState
from moorage.wire.client.informer import object_key

# Disruption budgets, as preemption sees them: it avoids victims whose budget is used up.
#
# It may still take one where no other victims make room: budgets protect from voluntary
# disruptions. Source: kube-scheduler DefaultPreemption `filterPodsWithPDBViolation`.


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
        for victim in pods:
            meta = victim.pod.metadata
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
                    violating.add(victim.key)
        return frozenset(violating)


ZONE = "topology.kubernetes.io/zone"


def occupies_node(pod: Pod) -> bool:
    """Return whether the pod holds resources of a node: bound, and not Succeeded or Failed."""
    return bool(pod.spec.node_name) and pod.status.phase not in ENDED_PHASES


class ClusterState:
    """The nodes and their pods, assumed pods included. Not for concurrent use."""

    def __init__(self, queries: QueryCache, storage: StorageState | None = None) -> None:
        self._queries = queries
        self.nodes: dict[str, NodeInfo] = {}
        self.disruption_budgets = DisruptionBudgets()
        self.storage = storage or StorageState()
        self.generation = 0
        self.zones: Counter[str] = Counter()
        self.image_spread: Counter[str] = Counter()
        self.affine_count = 0
        self.namespace_version = 0
        self._namespaces: dict[str, Labels] = {}
        self._homes: dict[str, str] = {}
        self._assumed: set[str] = set()
        self._pods_of_unknown_nodes: dict[str, dict[str, Placed]] = {}
        self._recent: dict[str, int] = {}
        self._forgotten_before = 0
        self._nominated: dict[str, dict[str, Placed]] = {}
        self._nominations: dict[str, str] = {}
        self._leaving: set[str] = set()

    # nodes

    def set_node(self, node: Node) -> bool:
        """Add or update a node. Returns whether anything changed that scheduling depends on."""
        name = node.metadata.name
        info = self.nodes.get(name)
        if info is None:
            info = self.nodes[name] = NodeInfo(node)
            for pod in self._pods_of_unknown_nodes.pop(name, {}).values():
                info.add(pod)
        elif offers_differ(info.node, node):
            self._tally_node(info, -1)
            info.set_node(node)
        else:
            info.node = node
            return False
        self._tally_node(info, 1)
        self._mark(name)
        info.static_version = self.generation
        return True

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods are kept until it is added again or they are deleted."""
        info = self.nodes.pop(name, None)
        if info is None:
            return
        self._tally_node(info, -1)
        if info.pods:
            self._pods_of_unknown_nodes[name] = dict(info.pods)
        self._mark(name)

    def _tally_node(self, info: NodeInfo, sign: int) -> None:
        zone = info.labels.get(ZONE)
        if zone is not None:
            _count(self.zones, zone, sign)
        for image in info.images:
            _count(self.image_spread, image, sign)

    # pods

    def set_pod(self, pod: Pod) -> None:
        """Add or update a bound pod from the API server; an ended pod is removed."""
        if not occupies_node(pod):
            self.remove_pod(pod)
            return
        key = object_key(pod.metadata)
        self._assumed.discard(key)
        known = self._find(key)
        if known is not None and self._homes[key] == pod.spec.node_name and _is_same(known, pod):
            self._replace(key, Placed(key, pod, known.query))
            return
        self._take_out(key)
        self._put(placed(pod, self._queries.of_placed(pod)), pod.spec.node_name)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod, assumed or bound; no effect if it is unknown."""
        key = object_key(pod.metadata)
        self._assumed.discard(key)
        self._take_out(key)

    def assume(self, pod: Pod, query: PodQuery, node_name: str) -> None:
        """Count a pod on a node before the API server shows it bound."""
        key = object_key(pod.metadata)
        self._take_out(key)
        self._put(Placed(key, pod, query), node_name)
        self._assumed.add(key)

    def forget(self, key: str) -> bool:
        """Remove an assumed pod whose binding failed. Returns whether it was still assumed."""
        if key not in self._assumed:
            return False
        self._assumed.discard(key)
        self._take_out(key)
        return True

    def is_assumed(self, key: str) -> bool:
        return key in self._assumed

    def home_of(self, key: str) -> str | None:
        """Return the name of the node the pod counts on; None if it counts on none."""
        return self._homes.get(key)

    def _find(self, key: str) -> Placed | None:
        home = self._homes.get(key)
        return None if home is None else self._pods_at(home).get(key)

    def _pods_at(self, node_name: str) -> Mapping[str, Placed]:
        info = self.nodes.get(node_name)
        return info.pods if info is not None else self._pods_of_unknown_nodes.get(node_name, {})

    def _replace(self, key: str, pod: Placed) -> None:
        """Replace the object of a pod whose node and requirements are unchanged."""
        info = self.nodes.get(self._homes[key])
        if info is None:
            self._pods_of_unknown_nodes[self._homes[key]][key] = pod
            return
        info.pods[key] = pod
        if key in info.affine:
            info.affine[key] = pod

    def _put(self, pod: Placed, node_name: str) -> None:
        self._homes[pod.key] = node_name
        info = self.nodes.get(node_name)
        if info is None:
            self._pods_of_unknown_nodes.setdefault(node_name, {})[pod.key] = pod
        else:
            info.add(pod)
            self._mark(info.name)
        if pod.query.terms.has_affinity:
            self.affine_count += 1

    def _take_out(self, key: str) -> None:
        home = self._homes.pop(key, None)
        if home is None:
            return
        self._leaving.discard(key)
        info = self.nodes.get(home)
        if info is None:
            pod = self._pods_of_unknown_nodes[home].pop(key)
            if not self._pods_of_unknown_nodes[home]:
                del self._pods_of_unknown_nodes[home]
        else:
            pod = info.remove(key)
            self._mark(info.name)
        if pod.query.terms.has_affinity:
            self.affine_count -= 1

    # nominations: pods that wait for their victims to terminate

    def nominate(self, pod: Pod, query: PodQuery, node_name: str) -> None:
        """Reserve resources on a node for a pod that preempted others there."""
        key = object_key(pod.metadata)
        self.withdraw(key)
        self._nominations[key] = node_name
        self._nominated.setdefault(node_name, {})[key] = Placed(key, pod, query)

    def withdraw(self, key: str) -> str | None:
        """Remove a pod's nomination. Returns the name of the nominated node; None without one."""
        node_name = self._nominations.pop(key, None)
        if node_name is None:
            return None
        waiting = self._nominated[node_name]
        del waiting[key]
        if not waiting:
            del self._nominated[node_name]
        return node_name

    @property
    def has_nominations(self) -> bool:
        return bool(self._nominations)

    def nomination_of(self, pod: Pod) -> str:
        """Return the name of the pod's nominated node; "" without one.

        A nomination made here takes precedence over the pod's status, which may be older.
        """
        return self._nominations.get(object_key(pod.metadata)) or pod.status.nominated_node_name

    def nominated_on(self, node_name: str) -> Iterable[Placed]:
        """Return the pods nominated to the node, as a snapshot."""
        return tuple(self._nominated.get(node_name, {}).values())

    def set_leaving(self, key: str, is_leaving: bool = True) -> None:
        """Mark or unmark a pod as terminating before the API server shows its deletion."""
        if is_leaving:
            self._leaving.add(key)
        else:
            self._leaving.discard(key)

    def is_leaving(self, key: str) -> bool:
        return key in self._leaving

    # namespaces

    def set_namespace(self, name: str, labels: Labels | None) -> bool:
        """Set a namespace's labels; None for a deleted namespace. Returns whether they changed."""
        if self._namespaces.get(name) == labels:
            return False
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        self.namespace_version += 1
        return True

    def namespace_labels(self, name: str) -> Labels:
        """Return the namespace's labels; empty if the namespace is unknown."""
        return self._namespaces.get(name, {})

    # changes

    def changed_since(self, generation: int) -> list[str] | None:
        """Return the names of nodes changed or removed since that generation.

        Returns None if the history no longer goes back that far; the caller then recomputes all.
        """
        if generation < self._forgotten_before:
            return None
        names: list[str] = []
        for name in reversed(self._recent):
            if self._recent[name] <= generation:
                break
            names.append(name)
        return names

    def _mark(self, name: str) -> None:
        self.generation += 1
        self._recent.pop(name, None)
        self._recent[name] = self.generation
        if len(self._recent) > 2 * len(self.nodes) + 64:
            self._recent = {node: at for node, at in self._recent.items() if node in self.nodes}
            self._forgotten_before = self.generation


def _is_same(known: Placed, pod: Pod) -> bool:
    """Return whether the pod still has the same labels, uid and node requirements."""
    before = known.pod
    if before.metadata.labels != pod.metadata.labels or before.metadata.uid != pod.metadata.uid:
        return False
    if _is_charged_otherwise(before, pod):
        return False
    # The object of an assumed pod has no node name yet; binding changes nothing else.
    return before.spec == pod.spec or (
        not before.spec.node_name
        and before.spec.containers == pod.spec.containers
        and before.spec.init_containers == pod.spec.init_containers
        and before.spec.resources == pod.spec.resources
    )


def _is_charged_otherwise(before: Pod, after: Pod) -> bool:
    """Return whether a resize, begun or ended, changes what a bound pod is charged for."""
    had, has = charged_spec(before), charged_spec(after)
    if had is before.spec and has is after.spec:
        return False
    return (had.resources, had.containers, had.init_containers) != (
        has.resources,
        has.containers,
        has.init_containers,
    )


def _count(counts: Counter[str], key: str, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]
