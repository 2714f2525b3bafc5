"""Review of a pod with its class: floor, allow-list, and what it asks for that the class lacks.

The same for a new pod, for the template of a workload, in a webhook and offline; what differs is
what becomes of the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from moorage.api.runtime_group import ENFORCE, NEEDS_ANNOTATION, OFF, feature_label
from moorage.runtimeclass.class_choice import own_needs
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import Demand, demands
from moorage.runtimeclass.fitting import fitting_classes, shown_classes
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.needs import NO_NEEDS, NeedsError
from moorage.runtimeclass.offer import Offer, Support
from moorage.runtimeclass.policies import EffectivePolicy, shown_policies
from moorage.runtimeclass.requirements import Requirements, accepted_nodes
from moorage.runtimeclass.temporary_classes import is_closed
from moorage.runtimeclass.validation import LEGACY, is_implicit

# Checks of a pod against its class: what it asks for that the class does not have.
#
# Only what probes found unsupported is a finding; what is unknown never is. A feature that some
# nodes of the class have and others lack is a finding too, but none that may refuse the pod: a
# node selector leads it to the right ones. Hot path with fitting (bench/fitting.py).

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


CLASS_PATH = ("spec", "runtimeClassName")
FLOOR, ALLOW_LIST, FEATURE, CLOSED = "floor", "allow-list", "feature", "class-closed"

Json = Mapping[str, Any]


class Objection(msgspec.Struct, frozen=True):
    """What stands against a pod. `rule` is floor, allow-list, feature or class-closed.

    `refuses`: the pod is refused for it; else it is a warning. `classes` would pass.
    """

    rule: str
    path: tuple[str | int, ...]
    message: str
    refuses: bool
    classes: tuple[str, ...] = ()
    finding: Finding | None = None


def review_pod(
    metadata: Json, spec: Json, policy: EffectivePolicy, index: ClassIndex
) -> tuple[Objection, ...]:
    """Return the objections to a pod that has its class; none for a class that is missing.

    That a class is missing is the RuntimeClass plugin's refusal. What a pod does not state about
    its class is the implicit class's, whose name is `legacy` and whose isolation the weakest: the
    handler behind it is the node's affair.
    """
    name = spec.get("runtimeClassName")
    offer = None if is_implicit(name) else index.find(name or "")
    if offer is None and not is_implicit(name):
        return ()
    objections = [*_policy_objections(spec, offer, policy, index)]
    if offer is not None:
        objections += _feature_objections(metadata, spec, offer, policy, index)
    return tuple(objections)


def review_name(namespace: str, spec: Json) -> Objection | None:
    """Return the objections to the name of a pod's class alone; needs no index.

    Only probes may name the classes of probes, which are gone when these end.
    """
    name = spec.get("runtimeClassName")
    if not is_closed(name, namespace):
        return None
    text = f"class {name} is there for the probes of a runtime agent alone; name another class"
    return Objection(CLOSED, CLASS_PATH, text, refuses=True)


def review_demands(
    offer: Offer,
    spec: Json,
    some: Iterable[Demand],
    policy: EffectivePolicy,
    index: ClassIndex,
) -> tuple[Objection, ...]:
    """Return the objections to some demands of a pod, such as those of a container added late."""
    requirements = Requirements(accepted_nodes(spec, index, offer), tuple(some), policy=policy)
    return _as_objections(offer, findings(offer, requirements, index), policy)


def _policy_objections(
    spec: Json, offer: Offer | None, policy: EffectivePolicy, index: ClassIndex
) -> Iterable[Objection]:
    name = LEGACY if offer is None else offer.name
    level = Isolation.SHARED_KERNEL if offer is None else offer.isolation
    shown = "no class" if offer is None else f"class {name}"
    allowed, floor = policy.allowed, policy.floor
    is_excluded = allowed is not None and name not in allowed.classes
    is_weak = floor is not None and (level is None or level < floor.isolation)
    if not is_excluded and not is_weak:
        return
    classes = _passing(spec, offer, policy, index)
    remedy = _unmet_remedy(classes)
    if allowed is not None and is_excluded:
        verb = "does" if len(allowed.policies) == 1 else "do"
        text = f"{shown_policies(allowed.policies)} {verb} not allow {shown}; {remedy}"
        yield Objection(ALLOW_LIST, CLASS_PATH, text, refuses=True, classes=classes)
    if floor is not None and is_weak:
        verb = "sets" if len(floor.policies) == 1 else "set"
        text = (
            f"{shown_policies(floor.policies)} {verb} the floor {floor.isolation.label}, and the "
            f"isolation of {shown} is {'unknown' if level is None else level.label}; {remedy}"
        )
        yield Objection(FLOOR, CLASS_PATH, text, refuses=True, classes=classes)


def _passing(
    spec: Json, offer: Offer | None, policy: EffectivePolicy, index: ClassIndex
) -> tuple[str, ...]:
    requirements = Requirements(accepted_nodes(spec, index, offer), demands(spec), policy=policy)
    return fitting_classes(requirements, index)


def _unmet_remedy(classes: tuple[str, ...]) -> str:
    if not classes:
        return "no class with a node would pass"
    return f"classes that would pass: {shown_classes(classes)}"


def _feature_objections(
    metadata: Json, spec: Json, offer: Offer, policy: EffectivePolicy, index: ClassIndex
) -> tuple[Objection, ...]:
    if policy.mode(offer.name, offer.check) == OFF:
        return ()
    try:
        needs = own_needs(metadata.get("annotations") or {})
    except NeedsError as error:
        needs = NO_NEEDS
        extra: tuple[Objection, ...] = (
            Objection(FEATURE, ("metadata", "annotations"), str(error), refuses=False),
        )
    else:
        extra = ()
    requirements = Requirements(accepted_nodes(spec, index, offer), demands(spec), needs, policy)
    return (*_as_objections(offer, findings(offer, requirements, index), policy), *extra)


def _as_objections(
    offer: Offer, found: Iterable[Finding], policy: EffectivePolicy
) -> tuple[Objection, ...]:
    mode = policy.mode(offer.name, offer.check)
    if mode == OFF:
        return ()
    return tuple(
        Objection(
            FEATURE,
            finding.path,
            str(finding),
            refuses=mode == ENFORCE and not finding.is_partial,
            classes=finding.classes,
            finding=finding,
        )
        for finding in found
    )
