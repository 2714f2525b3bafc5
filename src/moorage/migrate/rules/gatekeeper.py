"""Gatekeeper's mutations and constraints about `runtimeClassName` as RuntimePolicies.

An Assign is a default. A constraint is an allow-list where its template reads the pod's class and
it has a parameter with class names; Rego itself is not read, which a remark says. Sources:
Gatekeeper's "Mutation" and "Constraint" pages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.migrate.rules.changes import Outcome, note, refused
from moorage.migrate.rules.handler_files import table, text, texts
from moorage.migrate.rules.policies import PolicyRules, Scope, allowed_rules, policy_object
from moorage.runtimeclass.validation import LEGACY

_FIELD = "runtimeClassName"
_LOCATION = f"spec.{_FIELD}"
_MUTATIONS = "mutations.gatekeeper.sh"
_CONSTRAINTS = "constraints.gatekeeper.sh"
_TEMPLATES = "templates.gatekeeper.sh"
_PARAMETERS = (
    "allowedRuntimeClasses", "allowedRuntimeClassNames", "runtimeClassNames", "runtimeClasses",
    "allowedClasses",
)  # fmt: skip
_SCOPE_KEYS = frozenset({"kinds", "namespaces", "excludedNamespaces", "namespaceSelector", "scope"})


class _InexpressibleError(ValueError):
    """An object that no RuntimePolicy can express; the message says why."""


def is_policy(document: dict[str, Any]) -> bool:
    """Return whether a document is a mutation or constraint of Gatekeeper."""
    group = text(document.get("apiVersion")).partition("/")[0]
    return group in (_MUTATIONS, _CONSTRAINTS)


def class_templates(documents: Sequence[dict[str, Any]]) -> Mapping[str, str]:
    """Return the kinds of constraints whose template reads a pod's class, each with its name."""
    templates: dict[str, str] = {}
    for document in documents:
        if text(document.get("apiVersion")).partition("/")[0] != _TEMPLATES:
            continue
        spec = table(document.get("spec"))
        names = table(table(table(spec.get("crd")).get("spec")).get("names"))
        kind = text(names.get("kind"))
        if kind and _FIELD in json.dumps(spec.get("targets"), default=str):
            templates[kind] = text(table(document.get("metadata")).get("name"))
    return templates


def migrate_policy(
    document: dict[str, Any], templates: Mapping[str, str], known_classes: Sequence[str]
) -> Outcome:
    """Return the RuntimePolicies for a mutation or constraint, none if it is not about classes."""
    group = text(document.get("apiVersion")).partition("/")[0]
    kind, spec = text(document.get("kind")), table(document.get("spec"))
    name = text(table(document.get("metadata")).get("name"))
    try:
        if group == _MUTATIONS:
            if _FIELD not in text(spec.get("location")):
                return Outcome()
            rules, remark = _mutation(kind, spec)
        elif kind in templates:
            rules, remark = _constraint(spec, templates[kind], known_classes)
        else:
            return Outcome()
        scope = _scope(table(spec.get("match")))
    except _InexpressibleError as error:
        return Outcome(notes=[refused(str(error))])
    origin = f"{document['apiVersion']} {kind}/{name}"
    kept = note("it stays in force beside its RuntimePolicy: delete it when that one is")
    notes = [note(remark), kept] if remark else [kept]
    return Outcome(objects=[policy_object(name, scope, rules, origin)], notes=notes)


def _mutation(kind: str, spec: dict[str, Any]) -> tuple[PolicyRules, str]:
    if kind != "Assign" or spec.get("location") != _LOCATION:
        raise _InexpressibleError(f"only an Assign of {_LOCATION} has a counterpart")
    applied = spec.get("applyTo")
    kinds = [
        kind
        for entry in (applied if isinstance(applied, list) else ())
        for kind in texts(table(entry).get("kinds"))
    ]
    if "Pod" not in kinds:
        raise _InexpressibleError("it is not about pods")
    parameters = table(spec.get("parameters"))
    value = text(table(parameters.get("assign")).get("value"))
    if not value:
        raise _InexpressibleError("the class it sets is no constant")
    tests = parameters.get("pathTests")
    entries = [table(item) for item in tests] if isinstance(tests, list) else []
    is_addition = False
    for entry in entries:
        if entry.get("subPath") == _LOCATION and entry.get("condition") == "MustNotExist":
            is_addition = True
        elif entry.get("subPath") != "spec":
            raise _InexpressibleError("its pathTests have no counterpart")
    if is_addition:
        return PolicyRules(default=value), ""
    return PolicyRules(default=value, is_enforced=True, allowed=(value,)), (
        "it overwrote the class of pods that name another; these are refused now"
    )


def _constraint(
    spec: dict[str, Any], template: str, known_classes: Sequence[str]
) -> tuple[PolicyRules, str]:
    action = text(spec.get("enforcementAction")) or "deny"
    if action != "deny":
        raise _InexpressibleError(
            f"its enforcementAction is {action}, and a RuntimePolicy refuses; make it deny first"
        )
    parameters = table(spec.get("parameters"))
    lists = [key for key in _PARAMETERS if key in parameters]
    if len(lists) != 1 or not texts(parameters[lists[0]]):
        raise _InexpressibleError(
            f"its template {template} reads the class in Rego, and no parameter lists the allowed "
            "ones; write the policy by hand"
        )
    rules, remark = allowed_rules(texts(parameters[lists[0]]), known_classes)
    if rules is None:
        raise _InexpressibleError(remark)
    read = (
        f"its parameter {lists[0]} was taken for the classes that it allows; the Rego of "
        f"{template} was not read: compare them, and add {LEGACY} for pods without a class"
    )
    return rules, f"{read}; {remark}" if remark else read


def _scope(match: dict[str, Any]) -> Scope:
    unknown = sorted(set(match) - _SCOPE_KEYS)
    if unknown:
        raise _InexpressibleError(f"it selects pods by {', '.join(unknown)}")
    kinds = match.get("kinds")
    if isinstance(kinds, list) and kinds:
        named = [kind for entry in kinds for kind in texts(table(entry).get("kinds"))]
        if {"Pod", "*"}.isdisjoint(named):
            raise _InexpressibleError("it does not match pods")
    if match.get("scope") == "Cluster":
        raise _InexpressibleError("it matches cluster-scoped objects")
    names, excluded = texts(match.get("namespaces")), texts(match.get("excludedNamespaces"))
    if any("*" in name for name in (*names, *excluded)):
        raise _InexpressibleError("its namespaces have wildcards")
    return Scope(
        namespaces=tuple(sorted(set(names))),
        excluded=tuple(sorted(set(excluded))),
        selector=table(match.get("namespaceSelector")),
    )
