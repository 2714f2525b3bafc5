"""Class index: what each class offers, from classes, nodes and profiles as they come and go.

    RuntimeClass ─┐
    Node ─────────┼─▶ ClassIndex ─▶ Offer, one for each class, the cheapest first
    RuntimeProfile┘

A change of one object costs what the object holds; the offers are put together again at the next
question. Nodes are sets of bits (`node_sets.py`), so a question costs the same for one node as for
a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from moorage.api.conditions import is_true
from moorage.api.quantity import parse
from moorage.api.runtime_group import (
    CHECK_ANNOTATION,
    ISOLATION_LABEL,
    MANAGED,
    MANAGED_LABEL,
    PLACING_ANNOTATION,
    SUPPORTED,
    UNSUPPORTED,
    WORKING,
    RuntimeClass,
    RuntimeProfile,
    node_of_profile,
    profile_name,
)
from moorage.runtimeclass.demands import SharedValues
from moorage.runtimeclass.isolation import LEVELS, Isolation
from moorage.runtimeclass.node_sets import NodeFacts, Nodes, NodeSet, without
from moorage.runtimeclass.offer import Offer
from moorage.runtimeclass.temporary_classes import is_temporary

# Shortlists of classes: which ones can meet requirements at all, before nodes are looked at.
#
# Classes are bits, the cheapest the lowest, so that what rules out most of fifty classes costs a
# few intersections. Each set is made when it is first asked for: a node that flaps between
# features makes no work for those that no pod needs. Hot path: bench/fitting.py.

_MOST_LISTS = 1000

ClassSet = int
"""Classes as bits of a number."""


class Shortlist:
    """Sets of the classes of one moment, which are given from cheap to dear."""

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._offers = offers
        self.everything: ClassSet = (1 << len(offers)) - 1
        self._having: dict[str, ClassSet] = {}
        self._without: dict[str, ClassSet] = {}
        self._reaching: dict[Isolation, ClassSet] = {}
        self._named: dict[frozenset[str], ClassSet] = {}

    def having(self, feature: str) -> ClassSet:
        """Return the classes with a node on which a feature was found supported."""
        found = self._having.get(feature)
        if found is None:
            found = self._having[feature] = self._where(
                lambda offer: offer.supported.get(feature, 0) & offer.nodes
            )
        return found

    def without(self, feature: str) -> ClassSet:
        """Return the classes on whose nodes, all of them, a feature was found unsupported."""
        found = self._without.get(feature)
        if found is None:
            found = self._without[feature] = self._where(
                lambda offer: not offer.nodes & ~offer.unsupported.get(feature, 0)
            )
        return found

    def reaching(self, level: Isolation) -> ClassSet:
        """Return the classes whose isolation is known to be a level or stronger."""
        found = self._reaching.get(level)
        if found is None:
            found = self._reaching[level] = self._where(
                lambda offer: offer.isolation is not None and offer.isolation >= level
            )
        return found

    def named(self, names: frozenset[str]) -> ClassSet:
        """Return the classes with these names."""
        found = self._named.get(names)
        if found is None:
            if len(self._named) >= _MOST_LISTS:
                self._named.clear()
            found = self._named[names] = self._where(lambda offer: offer.name in names)
        return found

    def offers(self, classes: ClassSet) -> Iterator[Offer]:
        """Yield the offers of the classes of a set, the cheapest first."""
        while classes:
            lowest = classes & -classes
            yield self._offers[lowest.bit_length() - 1]
            classes ^= lowest

    def _where(self, is_in: Callable[[Offer], object]) -> ClassSet:
        return _bits(number for number, offer in enumerate(self._offers) if is_in(offer))


def _bits(numbers: Iterable[int]) -> ClassSet:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits


_DISABLED = "disabled"


class _Handler(msgspec.Struct):
    """What the profiles of one handler say, by node; `profiled` are those that have one."""

    profiled: NodeSet = 0
    broken: NodeSet = 0
    supported: dict[str, NodeSet] = msgspec.field(default_factory=dict)
    unsupported: dict[str, NodeSet] = msgspec.field(default_factory=dict)
    isolation: dict[Isolation, NodeSet] = msgspec.field(default_factory=dict)


class _Findings(msgspec.Struct, frozen=True):
    """What is recorded of a profile; of most nodes the same."""

    handler: str
    is_broken: bool = False
    supported: frozenset[str] = frozenset()
    unsupported: frozenset[str] = frozenset()
    isolation: Isolation | None = None

    @classmethod
    def of(cls, profile: RuntimeProfile) -> _Findings:
        """Return the facts of a profile. One whose probe has not run has none."""
        handler, status = profile.spec.handler, profile.status
        if not is_true(status.conditions, WORKING):
            is_broken = any(condition.type == WORKING and condition.status == "False"
                            for condition in status.conditions)  # fmt: skip
            return cls(handler, is_broken)
        return cls(
            handler,
            supported=frozenset(one.name for one in status.features if one.state == SUPPORTED),
            unsupported=frozenset(one.name for one in status.features if one.state == UNSUPPORTED),
            isolation=LEVELS.get(status.isolation),
        )


class ClassIndex:
    """Classes, nodes and profiles of a cluster. `version` counts the changes."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self._classes: dict[str, RuntimeClass] = {}
        self._profiles: dict[str, _Findings] = {}
        self._findings: SharedValues[_Findings] = SharedValues()
        self._handlers: dict[str, _Handler] = {}
        self._changes = 0
        self._found: dict[str, Offer] = {}
        self._offers: dict[str, Offer] = {}
        self._shortlist = Shortlist(())
        self._offers_at = -1

    @property
    def version(self) -> int:
        return self._changes + self.nodes.version

    @property
    def has_profiles(self) -> bool:
        return bool(self._profiles)

    def has_features(self, handler: str) -> bool:
        """Return whether the features of a handler were probed on any node."""
        known = self._handlers.get(handler)
        return known is not None and bool(known.supported or known.unsupported)

    def reporting_nodes(self) -> NodeSet:
        """Return the nodes of which an agent reports any handler at all."""
        nodes = 0
        for handler in self._handlers.values():
            nodes |= handler.profiled
        return nodes & self.nodes.existing

    def put_class(self, runtime_class: RuntimeClass) -> None:
        """Record a class. Raises ValueError for an overhead that is no amount."""
        name = runtime_class.metadata.name
        if runtime_class.overhead is not None:
            for text in runtime_class.overhead.pod_fixed.values():
                parse(text)
        self._classes[name] = runtime_class
        self._changes += 1

    def remove_class(self, name: str) -> None:
        if self._classes.pop(name, None) is not None:
            self._changes += 1

    def put_node(self, node: NodeFacts) -> None:
        """Record a node. Raises ValueError for allocatable amounts that are none."""
        self.nodes.put(node)

    def remove_node(self, name: str) -> None:
        self.nodes.remove(name)

    def put_profile(self, profile: RuntimeProfile) -> None:
        """Record a profile: what it says now counts, whatever it said before.

        One that has not the name NODE.HANDLER is ignored: a handler of a node has one profile, and
        what that says is neither outvoted nor forgotten with another.
        """
        name, spec = profile.metadata.name, profile.spec
        if name != profile_name(spec.node_name, spec.handler):
            return
        found = _Findings.of(profile)
        before = self._profiles.get(name)
        if before == found:
            return
        if before is not None:
            self._forget(name, before)
        self._profiles[name] = new = self._findings.take(found)
        bit = self.nodes.hold(spec.node_name)
        handler = self._handlers.setdefault(new.handler, _Handler())
        handler.profiled |= bit
        if new.is_broken:
            handler.broken |= bit
        for feature in new.supported:
            handler.supported[feature] = handler.supported.get(feature, 0) | bit
        for feature in new.unsupported:
            handler.unsupported[feature] = handler.unsupported.get(feature, 0) | bit
        if new.isolation is not None:
            handler.isolation[new.isolation] = handler.isolation.get(new.isolation, 0) | bit
        self._changes += 1

    def remove_profile(self, name: str) -> None:
        findings = self._profiles.pop(name, None)
        if findings is not None:
            self._forget(name, findings)
            self._changes += 1

    def _forget(self, name: str, profile: _Findings) -> None:
        self._findings.give_back(profile)
        node = node_of_profile(name)
        handler = self._handlers[profile.handler]
        bit = self.nodes.bit_of(node)
        handler.profiled &= ~bit
        handler.broken &= ~bit
        for feature in profile.supported:
            without(handler.supported, feature, bit)
        for feature in profile.unsupported:
            without(handler.unsupported, feature, bit)
        if profile.isolation is not None:
            without(handler.isolation, profile.isolation, bit)
        if not handler.profiled:
            del self._handlers[profile.handler]
        self.nodes.release(node)

    def find(self, name: str) -> Offer | None:
        """Return the offer of a class, temporary or not; None if it does not exist."""
        self._current()
        return self._found.get(name)

    def offers(self) -> Mapping[str, Offer]:
        """Return the offers of classes that pods may get, by name, the cheapest first.

        `Offer.cost` has the order. Classes of probes and measurements are not among them.
        """
        return self._current()

    def shortlist(self) -> Shortlist:
        """Return the sets of the present offers."""
        self._current()
        return self._shortlist

    def _current(self) -> dict[str, Offer]:
        if self._offers_at != self.version:
            offers = [self._offer(runtime_class) for runtime_class in self._classes.values()]
            offers.sort(key=lambda offer: offer.cost)
            self._found = {offer.name: offer for offer in offers}
            offers = [offer for offer in offers if not offer.is_temporary]
            self._offers = {offer.name: offer for offer in offers}
            self._shortlist = Shortlist(offers)
            self._offers_at = self.version
        return self._offers

    def _offer(self, runtime_class: RuntimeClass) -> Offer:
        meta, scheduling = runtime_class.metadata, runtime_class.scheduling
        handler = self._handlers.get(runtime_class.handler) or _Handler()
        selector = {} if scheduling is None else scheduling.node_selector
        overhead = {} if runtime_class.overhead is None else runtime_class.overhead.pod_fixed
        nodes = self.nodes.labelled(selector.items())
        nodes &= self.nodes.with_handler(runtime_class.handler) & ~handler.broken
        return Offer(
            name=meta.name,
            handler=runtime_class.handler,
            isolation=_isolation(_stated(meta.labels), handler, nodes),
            check=meta.annotations.get(CHECK_ANNOTATION, ""),
            overhead={name: parse(text).nano for name, text in overhead.items()},
            selector=selector,
            nodes=nodes,
            supported=handler.supported,
            unsupported=handler.unsupported,
            is_placed_by_handler=meta.annotations.get(PLACING_ANNOTATION) != _DISABLED,
            is_temporary=is_temporary(meta.name, meta.labels),
        )


def _stated(labels: Mapping[str, str]) -> Isolation | None:
    """Return the level that an administrator states.

    That of a managed class is what nodes said of themselves once: only their profiles count.
    """
    if labels.get(MANAGED_LABEL) == MANAGED:
        return None
    return LEVELS.get(labels.get(ISOLATION_LABEL, ""))


def _isolation(stated: Isolation | None, handler: _Handler, nodes: NodeSet) -> Isolation | None:
    """Return the level that a class has for sure: the weakest of its label and all probes.

    A label alone is believed, since only administrators write classes, but not against a probe.
    Without a label, every node must have been probed.
    """
    levels = [level for level, found in handler.isolation.items() if found & nodes]
    if stated is not None:
        return min((stated, *levels))
    probed = 0
    for found in handler.isolation.values():
        probed |= found
    if not nodes or nodes & ~probed:
        return None
    return min(levels)
