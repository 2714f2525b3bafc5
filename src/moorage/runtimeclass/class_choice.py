"""Choice of a pod's class: explicit, fitted to its needs, or the default of its namespace.

    names a class ─────────────────▶ stays; it is never changed
    has needs ─────────────────────▶ the cheapest class that fits (`fitting.py`)
    the namespace has a default ───▶ that one, unless the pod opts out and may
    else ──────────────────────────▶ none: the runtime's default handler

Needs are those of the pod, its namespace and its policies together. There is no way back to a
weaker class: what does not fit is refused. Choice and reason are annotations of the pod, which are
the choice's alone: what a pod brings is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.api.runtime_group import (
    CHOICE_ANNOTATION,
    CHOICE_REASON_ANNOTATION,
    DEFAULT_CLASS_LABEL,
    NEEDS_ANNOTATION,
)
from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.demands import demands
from moorage.runtimeclass.fitting import Misfit, fit
from moorage.runtimeclass.needs import NO_NEEDS, Needs, NeedsError, parse_needs, united
from moorage.runtimeclass.policies import EffectivePolicy, shown_policies
from moorage.runtimeclass.requirements import Requirements, accepted_nodes, requests_of

FITTED = "fitted"
DEFAULT = "default"
CHOICE_ANNOTATIONS = (CHOICE_ANNOTATION, CHOICE_REASON_ANNOTATION)
_DISABLED = "disabled"

Json = Mapping[str, Any]


class ChoiceRefusal(Exception):  # noqa: N818 - the field's word
    """A pod without a class of its own can be given none; the text describes why."""


class Choice(msgspec.Struct, frozen=True):
    """The class that a pod is given, None for none, and what is written on the pod.

    `how` is `fitted` or `default`, empty where the pod keeps what it has.
    """

    class_name: str | None = None
    how: str = ""
    reason: str = ""
    node_selector: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotations of the choice, none where the pod keeps what it has."""
        if not self.how:
            return {}
        return {CHOICE_ANNOTATION: self.how, CHOICE_REASON_ANNOTATION: self.reason}


KEPT = Choice()


def choose_class(
    metadata: Json,
    spec: Json,
    namespace_annotations: Mapping[str, str],
    policy: EffectivePolicy,
    index: ClassIndex,
) -> Choice:
    """Return the class for a pod. Raises ChoiceRefusal."""
    if spec.get("runtimeClassName"):
        return _explicit(spec["runtimeClassName"], policy)
    own = metadata.get("annotations") or {}
    needs, sources = stated_needs(own, namespace_annotations, policy)
    if needs:
        return _fitted(spec, needs, sources, policy, index)
    if policy.problem:
        raise ChoiceRefusal(policy.problem)
    default = policy.default
    if default is None:
        return KEPT
    warnings = policy.warnings
    if (metadata.get("labels") or {}).get(DEFAULT_CLASS_LABEL) == _DISABLED:
        if not default.is_enforced:
            return KEPT
        warnings = (
            *warnings,
            f"metadata.labels[{DEFAULT_CLASS_LABEL}]: {default.policy} enforces its default class "
            f"{default.name}",
        )
    if default.name not in index.offers():
        raise ChoiceRefusal(
            f"{default.policy} has the default class {default.name}, which "
            f"{_absence(default.name, index)}, change the policy, or name a class"
        )
    reason = f"class {default.name} is the default of {default.policy}"
    return Choice(default.name, DEFAULT, reason, warnings=warnings)


def _absence(name: str, index: ClassIndex) -> str:
    if index.find(name) is not None:
        return "is a temporary one of probes or measurements; create another"
    return "does not exist; create it"


def _explicit(name: str, policy: EffectivePolicy) -> Choice:
    """Return that a pod keeps its class. Raises ChoiceRefusal for `legacy` as a way to opt out."""
    default = policy.default
    if name == "legacy" and default is not None and default.is_enforced:
        raise ChoiceRefusal(
            f"{default.policy} enforces its default class {default.name}; name another class than "
            f"{name}, or none"
        )
    return KEPT


def own_needs(annotations: Mapping[str, str]) -> Needs:
    """Return the needs in annotations. Raises NeedsError."""
    text = annotations.get(NEEDS_ANNOTATION)
    return parse_needs(text) if text else NO_NEEDS


def stated_needs(
    own: Mapping[str, str], namespace: Mapping[str, str], policy: EffectivePolicy
) -> tuple[Needs, list[str]]:
    """Return all needs, and where they are stated. Raises ChoiceRefusal.

    `own` and `namespace` are the annotations of the pod and of its namespace.
    """
    if policy.problem:
        raise ChoiceRefusal(policy.problem)
    parts: list[Needs] = []
    sources: list[str] = []
    for source, stated in (("the pod", own), ("the namespace", namespace)):
        try:
            needs = own_needs(stated)
        except NeedsError as error:
            raise ChoiceRefusal(f"annotation {NEEDS_ANNOTATION} of {source}: {error}") from error
        if needs:
            parts.append(needs)
            sources.append(source)
    if policy.needs:
        parts.append(policy.needs)
        sources.append(shown_policies(policy.needs_policies))
    if not parts:
        return NO_NEEDS, []
    try:
        return united(parts), sources
    except NeedsError as error:
        raise ChoiceRefusal(f"needs of {', '.join(sources)}: {error}") from error


def binding_needs(
    own: Mapping[str, str], namespace: Mapping[str, str], policy: EffectivePolicy
) -> Needs:
    """Return the needs of a pod that is not refused for them, as one that names a class.

    Those of its policies hold whatever its namespace says, and those of both whatever it says
    itself: what cannot be understood, or contradicts them, is left out.
    """
    needs = policy.needs
    for stated in (namespace, own):
        try:
            needs = united((needs, own_needs(stated)))
        except NeedsError:
            continue
    return needs


def _fitted(
    spec: Json, needs: Needs, sources: list[str], policy: EffectivePolicy, index: ClassIndex
) -> Choice:
    if "no-network" in needs.features and spec.get("hostNetwork") is True:
        raise ChoiceRefusal(
            f"needs of {', '.join(sources)}: network=none and spec.hostNetwork contradict each "
            "other"
        )
    requirements = Requirements(
        nodes=accepted_nodes(spec, index),
        demands=demands(spec),
        needs=needs,
        policy=policy,
        requests=requests_of(spec),
    )
    try:
        found = fit(requirements, index)
    except Misfit as misfit:
        raise ChoiceRefusal(f"needs of {', '.join(sources)}: {misfit}") from misfit
    reason = (
        f"class {found.class_name} is the cheapest that offers {needs}, the needs of "
        f"{', '.join(sources)}"
    )
    return Choice(found.class_name, FITTED, reason, found.node_selector)
