"""Effective policy of a namespace: its own policies and the cluster's, as one.

Each rule is combined so that one more policy can only make it stricter, whatever the order:

    floor      the highest            enforcement   if any policy enforces its default
    allow-list the intersection       needs         all of them together
    checks     the strictest          default       an enforced one of the cluster, else the
                                                    namespace's, else the cluster's

The only rule that is no bound is the default without enforcement; of two that differ at one level
the policy that comes first by name counts, and there is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from moorage.api.labels import from_object
from moorage.api.runtime_group import (
    ENFORCE,
    OFF,
    WARN,
    ClusterRuntimePolicy,
    RuntimePolicy,
    RuntimePolicySpec,
)
from moorage.runtimeclass.isolation import LEVELS, Isolation
from moorage.runtimeclass.needs import NO_NEEDS, Needs, NeedsError, needs_of, united

OTHERS = "*"
"""Key of `checks` for all classes that have none of their own."""

MODES = (OFF, WARN, ENFORCE)
"""What happens to a pod that asks for what its class lacks, from mild to strict."""


_MOST_SHOWN = 3


def shown_policies(titles: Sequence[str]) -> str:
    """Return policies as messages name them: three, and how many more there are."""
    if len(titles) <= _MOST_SHOWN:
        return " and ".join(titles)
    return f"{', '.join(titles[:_MOST_SHOWN])} and {len(titles) - _MOST_SHOWN} more policies"


class Floor(msgspec.Struct, frozen=True):
    """The least isolation, and the policies that demand it."""

    isolation: Isolation
    policies: tuple[str, ...]


class AllowList(msgspec.Struct, frozen=True):
    """The classes that all policies with a list allow, and these policies."""

    classes: frozenset[str]
    policies: tuple[str, ...]


class DefaultClass(msgspec.Struct, frozen=True):
    """The default class, and the policy that names it. `is_enforced`: pods may not opt out."""

    name: str
    policy: str
    is_enforced: bool = False


class _Modes(msgspec.Struct, frozen=True):
    """What the policies of one level say of checks: the strictest mode by class."""

    by_policy: tuple[Mapping[str, str], ...] = ()

    def of(self, class_name: str) -> str | None:
        """Return the strictest mode for a class, None if no policy says anything of it."""
        stated = [
            mode
            for checks in self.by_policy
            if (mode := checks.get(class_name) or checks.get(OTHERS)) in MODES
        ]
        return max(stated, key=MODES.index, default=None)


class EffectivePolicy(msgspec.Struct, frozen=True):
    """The rules for the pods of a namespace; what is None is not ruled.

    `problem`: why pods without a class of their own cannot be given one; empty if nothing is wrong.
    `needs` are those that can be understood even then.
    """

    floor: Floor | None = None
    allowed: AllowList | None = None
    default: DefaultClass | None = None
    needs: Needs = NO_NEEDS
    needs_policies: tuple[str, ...] = ()
    problem: str = ""
    warnings: tuple[str, ...] = ()
    cluster_modes: _Modes = _Modes()
    own_modes: _Modes = _Modes()

    def mode(self, class_name: str, stated_by_class: str = "") -> str:
        """Return Enforce, Warn or Off for pods of a class.

        The cluster's policies, else the class itself; without both Warn. The namespace's own
        policies can make it stricter; milder only where neither says anything.
        """
        cluster = self.cluster_modes.of(class_name)
        if cluster is None and stated_by_class in MODES:
            cluster = stated_by_class
        own = self.own_modes.of(class_name)
        if own is None or cluster is None:
            return own or cluster or WARN
        return max(own, cluster, key=MODES.index)

    @property
    def is_empty(self) -> bool:
        """Return whether no rule chooses or refuses a class."""
        return self == _EMPTY


_EMPTY = EffectivePolicy()


class _Named(msgspec.Struct, frozen=True):
    """A policy, with the name that messages use."""

    title: str
    name: str
    spec: RuntimePolicySpec


def effective_policy(
    labels: Mapping[str, str],
    cluster: Iterable[ClusterRuntimePolicy],
    own: Iterable[RuntimePolicy],
) -> EffectivePolicy:
    """Return the policy of a namespace with these labels and its own policies, in any order.

    A cluster's policy whose selector cannot be understood matches every namespace: no rule is lost.
    """
    matching = sorted(
        (_Named(f"ClusterRuntimePolicy {one.metadata.name}", one.metadata.name, one.spec)
         for one in cluster if _matches(one, labels)),
        key=lambda one: one.name,
    )  # fmt: skip
    namespaced = sorted(
        (_Named(f"RuntimePolicy {one.metadata.namespace}/{one.metadata.name}",
                one.metadata.name, one.spec) for one in own),
        key=lambda one: one.name,
    )  # fmt: skip
    if not matching and not namespaced:
        return _EMPTY
    policies = [*matching, *namespaced]
    warnings: list[str] = []
    default = _default(matching, namespaced, warnings)
    needs, problem = _needs(policies)
    return EffectivePolicy(
        floor=_floor(policies),
        allowed=_allowed(policies),
        default=default,
        needs=needs,
        needs_policies=tuple(one.title for one in policies if one.spec.needs),
        problem=problem,
        warnings=tuple(warnings),
        cluster_modes=_Modes(tuple(one.spec.checks for one in matching if one.spec.checks)),
        own_modes=_Modes(tuple(one.spec.checks for one in namespaced if one.spec.checks)),
    )


def restricting_policies(policy: EffectivePolicy) -> tuple[str, ...]:
    """Return the policies that restrict which classes pods may use, sorted by name."""
    rules = (policy.floor, policy.allowed)
    return tuple(sorted({name for rule in rules if rule is not None for name in rule.policies}))


def _matches(policy: ClusterRuntimePolicy, labels: Mapping[str, str]) -> bool:
    selector = policy.spec.namespace_selector
    if selector is None:
        return True
    try:
        return from_object(selector).matches(labels)
    except ValueError:
        return True


def _floor(policies: Sequence[_Named]) -> Floor | None:
    levels = {one.title: _level(one.spec) for one in policies}
    stated = {title: level for title, level in levels.items() if level is not None}
    if not stated:
        return None
    highest = max(stated.values())
    return Floor(highest, tuple(title for title, level in stated.items() if level == highest))


def _level(spec: RuntimePolicySpec) -> Isolation | None:
    """Return the floor of one policy. A level that does not exist is above all that do."""
    text = spec.minimum_isolation
    return LEVELS.get(text, max(Isolation)) if text else None


def _allowed(policies: Sequence[_Named]) -> AllowList | None:
    lists = {
        one.title: frozenset(one.spec.allowed_classes)
        for one in policies
        if one.spec.allowed_classes is not None
    }
    if not lists:
        return None
    return AllowList(frozenset.intersection(*lists.values()), tuple(lists))


def _default(
    cluster: Sequence[_Named], own: Sequence[_Named], warnings: list[str]
) -> DefaultClass | None:
    """Return the default class.

    An enforced one of the cluster precedes the namespace's: it could be replaced by a weaker class.
    """
    enforced = _first([one for one in cluster if one.spec.enforce_default], warnings)
    chosen = enforced or _first(own, warnings) or _first(cluster, warnings)
    if chosen is None or chosen.spec.default_class_name is None:
        return None
    is_enforced = any(
        one.spec.enforce_default and one.spec.default_class_name for one in (*cluster, *own)
    )
    return DefaultClass(chosen.spec.default_class_name, chosen.title, is_enforced)


def _first(policies: Sequence[_Named], warnings: list[str]) -> _Named | None:
    """Return the first policy by name with a default class; warn of one that differs."""
    stated = [one for one in policies if one.spec.default_class_name]
    if not stated:
        return None
    first = stated[0]
    name = first.spec.default_class_name
    others = [one for one in stated[1:] if one.spec.default_class_name != name]
    if others:
        other, more = others[0], len(others) - 1
        warnings.append(
            f"default class {name} is {first.title}'s; {other.title}, which comes later by name, "
            f"has {other.spec.default_class_name}"
            + (f", and {more} more policies have other classes" if more else "")
        )
    return first


def _needs(policies: Sequence[_Named]) -> tuple[Needs, str]:
    """Return the needs of all policies together, and what is wrong with them.

    With a fault they are those of the policies without one, and what contradicts an earlier policy
    is left out: one of a namespace takes nothing away from those of the cluster.
    """
    needs, problem = NO_NEEDS, ""
    for one in policies:
        try:
            own = needs_of(one.spec.needs)
        except NeedsError as error:
            problem = problem or f"{one.title}: {error}"
            continue
        try:
            needs = united((needs, own))
        except NeedsError as error:
            titles = shown_policies([each.title for each in policies if each.spec.needs])
            problem = problem or f"{titles}: {error}"
    return needs, problem
