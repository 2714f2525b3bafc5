"""Checks of a pod against its class: what it asks for that the class does not have.

Only what probes found unsupported is a finding; what is unknown never is. A feature that some nodes
of the class have and others lack is a finding too, but none that may refuse the pod: a node
selector leads it to the right ones. Hot path with fitting (bench/fitting.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from moorage.api.runtime_group import NEEDS_ANNOTATION, feature_label
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import Demand
from moorage.runtimeclass.fitting import fitting_classes, shown_classes
from moorage.runtimeclass.offer import Offer, Support
from moorage.runtimeclass.requirements import Requirements

NEEDS_PATH = ("metadata", "annotations", NEEDS_ANNOTATION)


class Finding(msgspec.Struct, frozen=True):
    """A field that asks for what the class lacks.

    `classes` would do for the whole pod, the cheapest first. `is_partial`: some nodes have it.
    """

    path: tuple[str | int, ...]
    field: str
    feature: str
    message: str
    classes: tuple[str, ...] = ()
    is_partial: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def findings(offer: Offer, requirements: Requirements, index: ClassIndex) -> tuple[Finding, ...]:
    """Return the features that a pod with these requirements asks for and its class lacks."""
    lacking = [
        (demand, support)
        for demand in requirements.demands
        if (support := _support(offer, demand.feature, requirements)) is not None
    ]
    needs = requirements.needs
    if needs:
        own = {demand.feature for demand in requirements.demands}
        lacking += [
            (Demand(NEEDS_PATH, feature), support)
            for feature in sorted(needs.features - own)
            if (support := _support(offer, feature, requirements)) is not None
        ]
    is_weak = needs.isolation is not None and (
        offer.isolation is not None and offer.isolation < needs.isolation
    )
    if not lacking and not is_weak:
        return ()
    classes = fitting_classes(replace(requirements, requests={}), index)
    found = [_finding(offer, demand, support, classes) for demand, support in lacking]
    if is_weak:
        assert needs.isolation is not None
        assert offer.isolation is not None
        demand = Demand(NEEDS_PATH, f"isolation={needs.isolation.label}")
        text = (
            f"class {offer.name} has the isolation {offer.isolation.label}, not "
            f"{needs.isolation.label} or stronger; {_remedy(classes)}"
        )
        found.append(Finding(demand.path, demand.field, demand.feature, text, classes))
    return tuple(found)


def _support(offer: Offer, feature: str, requirements: Requirements) -> Support | None:
    """Return how far a class lacks a feature; None if it does not, or if that is unknown."""
    lacking = offer.unsupported.get(feature, 0) & offer.nodes & requirements.nodes
    if not lacking:
        return None
    support = offer.support(feature, requirements.nodes)
    return support if support in (Support.NOWHERE, Support.SOMEWHERE) else None


def _finding(offer: Offer, demand: Demand, support: Support, classes: Sequence[str]) -> Finding:
    feature = demand.feature
    if support is Support.SOMEWHERE:
        text = (
            f"only some nodes of class {offer.name} have {feature}; the node selector "
            f"{feature_label(offer.handler, feature)}=true leads to them"
        )
        return Finding(demand.path, demand.field, feature, text, tuple(classes), is_partial=True)
    text = f"class {offer.name} lacks {feature}; {_remedy(classes)}"
    return Finding(demand.path, demand.field, feature, text, tuple(classes))


def _remedy(classes: Sequence[str]) -> str:
    if not classes:
        return "no other class would do"
    return f"classes that would do: {shown_classes(classes)}"
