"""State of the policies: pods, namespaces and policies as known, and the fragments they give. Pure.

A change marks what depends on it; `changes` returns the fragments that differ. A new pod costs one
look at each set of peers, and rules for itself alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from moorage.api.labels import Selector, from_object
from moorage.network.frame import Family
from moorage.network.objects import NetworkPolicy
from moorage.network.packet_filter import Change
from moorage.network.policies.class_networks import ClassNetwork
from moorage.network.policies.peers import Labels, NetworkPod, Peers
from moorage.network.policies.rules import Verdicts, rules_under, verdicts_of
from moorage.network.tables import EMPTY, Fragment


class PolicyState:
    """What the policies of a cluster allow the pods of this node."""

    def __init__(self, families: Iterable[Family], dns: str = "") -> None:
        """`dns` is the address of the cluster DNS."""
        self._families = tuple(families)
        self._dns = dns
        self._classes: dict[str, ClassNetwork] = {}
        self._policies: dict[str, dict[str, tuple[Selector, NetworkPolicy]]] = {}
        self._namespaces: dict[str, Labels] = {}
        self._pods: dict[str, NetworkPod] = {}
        self._at: dict[str, str] = {}
        self._members: dict[Peers, dict[str, NetworkPod]] = {}
        self._uses: Counter[Peers] = Counter()
        self._used_by: dict[str, frozenset[Peers]] = {}
        self._dirty_pods: dict[str, None] = {}
        self._dirty_peers: dict[Peers, None] = {}

    def set_policy(self, namespace: str, name: str, policy: NetworkPolicy | None) -> None:
        """Note a policy, None if it is deleted."""
        policies = self._policies.setdefault(namespace, {})
        changed = [policies.pop(name, None)]
        if policy is not None:
            # Parsed once, since each pod of the namespace is compared with each of its policies.
            policies[name] = from_object(policy.spec.pod_selector), policy
            changed.append(policies[name])
        if not policies:
            del self._policies[namespace]
        selectors = [one[0] for one in changed if one is not None]
        for key, pod in self._pods.items():
            if pod.namespace == namespace and any(one.matches(pod.labels) for one in selectors):
                self._dirty_pods[key] = None

    def set_class(self, name: str, network: ClassNetwork) -> None:
        """Note the network of a class. A class that is deleted keeps it, as its pods go on."""
        if self._classes.get(name) == network:
            return
        self._classes[name] = network
        for key, pod in self._pods.items():
            if pod.runtime_class == name:
                self._dirty_pods[key] = None

    def has_pod(self, key: str) -> bool:
        """Return whether a pod is known, with an address."""
        return key in self._pods

    def set_namespace(self, name: str, labels: Labels | None) -> None:
        """Note a namespace's labels, None if it is deleted."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        for peers in self._members:
            if peers.namespaces is not None:
                self._count_in(peers, (pod for pod in self._pods.values() if pod.namespace == name))

    def set_pod(self, key: str, pod: NetworkPod | None) -> None:
        """Note a pod, None if it has no address any more.

        An address that another pod had is now this one's: the other is forgotten.
        """
        before = self._pods.get(key)
        if before == pod:
            return
        if before is not None:
            del self._pods[key]
            for address in before.addresses:
                if self._at.get(address) == key:
                    del self._at[address]
        if pod is not None:
            for address in pod.addresses:
                other = self._at.get(address)
                if other is not None:
                    self.set_pod(other, None)
                self._at[address] = key
            self._pods[key] = pod
        self._dirty_pods[key] = None
        for peers, members in self._members.items():
            if pod is not None:
                self._count_in(peers, (pod,))
            elif members.pop(key, None) is not None:
                self._dirty_peers[peers] = None

    def policies_of(self, pod: NetworkPod) -> list[NetworkPolicy]:
        """Return the policies that select a pod."""
        return [
            policy
            for selector, policy in self._policies.get(pod.namespace, {}).values()
            if selector.matches(pod.labels)
        ]

    def changes(self) -> list[Change]:
        """Return the fragments that are not as they were last returned, in the order to apply."""
        pods = list(self._pod_changes())
        # A set comes before the chains that use it, and goes after them.
        unused = [peers for peers in self._members if not self._uses[peers]]
        for peers in unused:
            del self._members[peers]
            self._dirty_peers.pop(peers, None)
        changed = [self._of_peers(peers) for peers in self._dirty_peers]
        self._dirty_peers.clear()
        return [
            *(change for changes in changed for change in changes),
            *pods,
            *((family, peers.name, EMPTY) for peers in unused for family in self._families),
        ]

    def _pod_changes(self) -> Iterator[Change]:
        dirty, self._dirty_pods = self._dirty_pods, {}
        # Under ten thousand policies, what they say is worked out once for all of their pods.
        shared: dict[tuple[object, ...], Verdicts] = {}
        for key in dirty:
            pod = self._pods.get(key)
            fragments: dict[Family, Fragment] = dict.fromkeys(self._families, EMPTY)
            used: set[Peers] = set()
            if pod is not None:
                policies = self.policies_of(pod)
                names = tuple(policy.metadata.name for policy in policies)
                network = self._classes.get(pod.runtime_class, ClassNetwork.DEFAULT)
                for family in self._families:
                    under = (family, pod.namespace, names, pod.ports, network)
                    if under not in shared:
                        shared[under] = verdicts_of(pod.ports, policies, family, network, self._dns)
                    rules = rules_under(pod, shared[under], family)
                    fragments[family] = rules.fragment
                    used |= rules.peers
            self._use(key, frozenset(used))
            for family, fragment in fragments.items():
                yield family, f"pod/{key}", fragment

    def _use(self, key: str, used: frozenset[Peers]) -> None:
        for peers in used - self._used_by.get(key, frozenset()):
            self._uses[peers] += 1
            if peers not in self._members:
                self._members[peers] = {}
                self._dirty_peers[peers] = None
                self._count_in(peers, self._pods.values())
        for peers in self._used_by.get(key, frozenset()) - used:
            self._uses[peers] -= 1
            if not self._uses[peers]:
                del self._uses[peers]
        self._used_by[key] = used
        if not used:
            del self._used_by[key]

    def _count_in(self, peers: Peers, pods: Iterable[NetworkPod]) -> None:
        """Note which of these pods belong to the peers."""
        members = self._members[peers]
        for pod in pods:
            if peers.includes(pod, self._namespaces):
                if members.get(pod.key) != pod:
                    members[pod.key] = pod
                    self._dirty_peers[peers] = None
            elif members.pop(pod.key, None) is not None:
                self._dirty_peers[peers] = None

    def _of_peers(self, peers: Peers) -> list[Change]:
        members = self._members[peers]
        return [
            (family, peers.name, peers.fragment(members.values(), family))
            for family in self._families
        ]
