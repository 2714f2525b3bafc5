"""Terms of inter-pod affinity and of topology spread, parsed once per pod template.

Source: core/v1 `PodAffinityTerm` (KEP-2249 namespaceSelector, KEP-3633 matchLabelKeys) and
`TopologySpreadConstraint` (KEP-895, KEP-3022 minDomains, KEP-3094 inclusion policies, KEP-3243).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from moorage.api import labels
from moorage.api.labels import Labels, Requirement, Selector
from moorage.api.meta import Raw
from moorage.api.pods import (
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodSpec,
    TopologySpreadConstraint,
)
from moorage.api.remembered import remembered

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"


@dataclass(frozen=True, slots=True)
class Term:
    """A pod affinity term: the pods it selects (labels, namespaces) and the topology key."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector

    def matches(self, namespace: str, pod_labels: Labels, namespace_labels: Labels) -> bool:
        """Return whether the term selects a pod with these labels in this namespace."""
        if namespace not in self.namespaces and not self.namespace_selector.matches(
            namespace_labels
        ):
            return False
        return self.selector.matches(pod_labels)


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A preferred term: its weight (1 to 100) is added for, or taken from, matching domains."""

    weight: int
    term: Term


@dataclass(frozen=True, slots=True)
class Spread:
    """One topology spread constraint; `honors_…` are the node inclusion policies."""

    topology_key: str
    max_skew: int
    min_domains: int
    selector: Selector
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodTerms:
    """The terms of a pod specification that depend on other pods."""

    required: tuple[Term, ...] = ()
    required_anti: tuple[Term, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    preferred_anti: tuple[WeightedTerm, ...] = ()
    hard_spread: tuple[Spread, ...] = ()
    soft_spread: tuple[Spread, ...] = ()

    @property
    def has_affinity(self) -> bool:
        return bool(self.required or self.required_anti or self.preferred or self.preferred_anti)

    @property
    def has_spread(self) -> bool:
        return bool(self.hard_spread or self.soft_spread)


NO_TERMS = PodTerms()


def pod_terms(spec: PodSpec, namespace: str, pod_labels: Labels) -> PodTerms:
    """Parse the terms of a pod; its own labels give the values of `matchLabelKeys`."""
    affinity = spec.affinity
    near = (affinity.pod_affinity if affinity else None) or PodAffinity()
    far = (affinity.pod_anti_affinity if affinity else None) or PodAntiAffinity()
    if affinity is None and not spec.topology_spread_constraints:
        return NO_TERMS
    terms = PodTerms(
        required=_terms(
            near.required_during_scheduling_ignored_during_execution, namespace, pod_labels
        ),
        required_anti=_terms(
            far.required_during_scheduling_ignored_during_execution, namespace, pod_labels
        ),
        preferred=tuple(
            WeightedTerm(wish.weight, _term(wish.pod_affinity_term, namespace, pod_labels))
            for wish in near.preferred_during_scheduling_ignored_during_execution
        ),
        preferred_anti=tuple(
            WeightedTerm(wish.weight, _term(wish.pod_affinity_term, namespace, pod_labels))
            for wish in far.preferred_during_scheduling_ignored_during_execution
        ),
        hard_spread=_spreads(spec, DO_NOT_SCHEDULE, pod_labels),
        soft_spread=_spreads(spec, SCHEDULE_ANYWAY, pod_labels),
    )
    return NO_TERMS if terms == NO_TERMS else terms


def _terms(
    terms: Iterable[PodAffinityTerm], namespace: str, pod_labels: Labels
) -> tuple[Term, ...]:
    return tuple(_term(term, namespace, pod_labels) for term in terms)


def _term(term: PodAffinityTerm, namespace: str, pod_labels: Labels) -> Term:
    own = term.namespaces or (() if term.namespace_selector is not None else (namespace,))
    return Term(
        topology_key=term.topology_key,
        selector=_selector(
            term.label_selector, term.match_label_keys, term.mismatch_label_keys, pod_labels
        ),
        namespaces=frozenset(own),
        namespace_selector=selector_of(term.namespace_selector),
    )


def _spreads(spec: PodSpec, kind: str, pod_labels: Labels) -> tuple[Spread, ...]:
    return tuple(
        _spread(constraint, pod_labels)
        for constraint in spec.topology_spread_constraints
        if constraint.when_unsatisfiable == kind
    )


def _spread(constraint: TopologySpreadConstraint, pod_labels: Labels) -> Spread:
    return Spread(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        selector=_selector(constraint.label_selector, constraint.match_label_keys, (), pod_labels),
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )


def _selector(
    raw: Raw | None, match_keys: Iterable[str], mismatch_keys: Iterable[str], own: Labels
) -> Selector:
    # The API server may have merged the keys already; a duplicate requirement changes nothing.
    base = selector_of(raw)
    extra = [Requirement(key, "in", (own[key],)) for key in match_keys if key in own]
    extra += [Requirement(key, "notin", (own[key],)) for key in mismatch_keys if key in own]
    if base.matches_nothing or not extra:
        return base
    return Selector((*base.requirements, *extra))


def selector_of(raw: Mapping[str, object] | None) -> Selector:
    """Parse a label selector from JSON. None or an invalid selector selects nothing."""
    return labels.NOTHING if raw is None else _parsed(msgspec.json.encode(raw))


@remembered(1024)
def _parsed(encoded: bytes) -> Selector:
    try:
        return labels.from_object(msgspec.json.decode(encoded))
    except ValueError:
        return labels.NOTHING
