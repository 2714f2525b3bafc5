"""Review of a pod with its class: floor, allow-list, and what it asks for that the class lacks.

The same for a new pod, for the template of a workload, in a webhook and offline; what differs is
what becomes of the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.api.runtime_policies import ENFORCE, OFF
from moorage.runtimeclass.checking import Finding, findings
from moorage.runtimeclass.class_choice import own_needs
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import Demand, demands
from moorage.runtimeclass.fitting import fitting_classes, shown_classes
from moorage.runtimeclass.handler import LEGACY, is_implicit
from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.needs import NO_NEEDS, NeedsError
from moorage.runtimeclass.offer import Offer
from moorage.runtimeclass.policies import EffectivePolicy, shown_policies
from moorage.runtimeclass.requirements import Requirements, accepted_nodes
from moorage.runtimeclass.temporary_classes import is_closed

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
    remedy = _remedy(classes)
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


def _remedy(classes: tuple[str, ...]) -> str:
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
