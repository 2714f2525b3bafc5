"""Kyverno policies: rules about `runtimeClassName` as RuntimePolicies.

A mutation is a default, a validation an allow-list or a floor. A rule whose scope or condition a
RuntimePolicy cannot express is left out with the reason, never approximated by a wider one.
Sources: Kyverno's "Mutate Rules", "Validate Rules", "Selecting Resources"; its PSP migration
policies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from moorage.api.yaml_values import YamlError, parse_document
from moorage.migrate.rules.changes import Outcome, Severity, note, refused
from moorage.migrate.rules.handler_files import table, text, texts
from moorage.migrate.rules.policies import PolicyRules, Scope, allowed_rules, joined_objects

FIELD = "runtimeClassName"
_ANCHORED = re.compile(r"(?P<anchor>[+=X]?)\((?P<name>[^()]+)\)")
_CLASS_OF_POD = re.compile(
    r"\{\{\s*request\.object\.spec\.runtimeClassName\s*"
    r"(?:\|\|\s*(?:'(?P<raw>[\w.-]*)'|`?\"(?P<literal>[\w.-]*)\"`?)\s*)?\}\}"
)
_EQUAL = frozenset({"Equals", "Equal", "AnyIn", "AllIn", "In"})
_POD_KINDS = frozenset({"Pod", "v1/Pod", "*/Pod", "*/v1/Pod"})
_ONLY_THESE = frozenset({"NotIn", "AnyNotIn", "AllNotIn", "NotEquals", "NotEqual"})
_OPERATION = "request.operation"
_SCOPE_KEYS = frozenset({"kinds", "namespaces", "namespaceSelector", "operations"})


class _InexpressibleError(ValueError):
    """A rule that no RuntimePolicy can express; the message says why."""


def is_policy(document: dict[str, Any]) -> bool:
    """Return whether a document is a Kyverno policy, of any version."""
    return text(document.get("apiVersion")).partition("/")[0] in (
        "kyverno.io",
        "policies.kyverno.io",
    ) and text(document.get("kind")).endswith("Policy")


def migrate_policy(document: dict[str, Any], known_classes: Sequence[str]) -> Outcome:
    """Return the RuntimePolicies for the rules about classes in a Kyverno policy.

    `known_classes` are the names that patterns with wildcards are matched against.
    """
    if not mentions(document.get("spec")):
        return Outcome()
    kind = text(document.get("kind"))
    if kind not in ("Policy", "ClusterPolicy"):
        return Outcome(notes=[refused(f"a {kind} is written in CEL; write the policy by hand")])
    metadata, spec = table(document.get("metadata")), table(document.get("spec"))
    name = text(metadata.get("name"))
    namespace = "" if kind == "ClusterPolicy" else text(metadata.get("namespace")) or "default"
    entries: list[tuple[str, Scope, PolicyRules]] = []
    notes: list[tuple[Severity, str]] = []
    rules = spec.get("rules")
    for rule in rules if isinstance(rules, list) else ():
        if not isinstance(rule, dict) or not mentions(rule):
            continue
        rule_name = text(rule.get("name"))
        try:
            scopes = list(_scopes(rule, namespace))
            effect, remark = _effect(rule, spec, known_classes)
        except _InexpressibleError as error:
            notes.append(refused(f"rule {rule_name!r}: {error}"))
            continue
        if remark:
            notes.append(note(f"rule {rule_name!r}: {remark}"))
        entries += [(rule_name, scope, effect) for scope in scopes]
    if not entries:
        return Outcome(notes=notes)
    origin = f"{document['apiVersion']} {kind}/{name}"
    notes.append(note("it stays in force beside its RuntimePolicy: delete it when that one is"))
    return Outcome(objects=joined_objects(name, entries, origin), notes=notes)


def mentions(value: Any) -> bool:
    """Return whether a value has the name of the field with the class anywhere."""
    return FIELD in json.dumps(value, default=str)


# What a rule does.


def _effect(
    rule: dict[str, Any], spec: dict[str, Any], known_classes: Sequence[str]
) -> tuple[PolicyRules, str]:
    """Return the rules of a Kyverno rule and a remark. Raises _InexpressibleError."""
    is_for_classless = _is_for_classless(rule)
    if mentions(rule.get("mutate")):
        return _mutation(table(rule.get("mutate")), is_for_classless=is_for_classless)
    if is_for_classless:
        raise _InexpressibleError("its preconditions have no counterpart")
    validate = table(rule.get("validate"))
    if not mentions(validate):
        raise _InexpressibleError("only its match or context mentions the class")
    action = (
        text(validate.get("failureAction")) or text(spec.get("validationFailureAction")) or "Audit"
    )
    if action.lower() != "enforce":
        raise _InexpressibleError(
            "it only audits, and a RuntimePolicy refuses; make it enforce first"
        )
    alternatives, is_optional = _alternatives(validate)
    rules, remark = allowed_rules(alternatives, known_classes, is_optional=is_optional)
    if rules is None:
        raise _InexpressibleError(remark)
    return rules, remark


def _is_for_classless(rule: dict[str, Any]) -> bool:
    """Return whether a rule is for pods without a class alone. Raises _InexpressibleError."""
    conditions = rule.get("preconditions")
    if conditions is None:
        return False
    others = [
        condition
        for condition in _conditions(conditions)
        if _OPERATION not in text(condition.get("key"))
    ]
    if not others:
        return False
    condition = others[0]
    match = _CLASS_OF_POD.fullmatch(text(condition.get("key")).strip())
    value = condition.get("value")
    if (
        len(list(_conditions(conditions))) > 1
        or match is None
        or text(condition.get("operator")) not in _EQUAL
        or value not in (_absent(match), [_absent(match)])
    ):
        raise _InexpressibleError("its preconditions have no counterpart")
    return True


def _absent(match: re.Match[str]) -> str:
    """Return the value of an expression of the pod's class for a pod without one."""
    return match["raw"] or match["literal"] or ""


def _conditions(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (table(item) for item in value)
    elif isinstance(value, dict):
        for entries in value.values():
            yield from (table(item) for item in entries if isinstance(entries, list))


def _mutation(mutate: dict[str, Any], *, is_for_classless: bool) -> tuple[PolicyRules, str]:
    if "targets" in mutate or "foreach" in mutate:
        raise _InexpressibleError("it changes other objects, or lists in the pod")
    value, is_addition, has_more = _merged(mutate)
    if not value or "{{" in value:
        raise _InexpressibleError("the class it sets is no constant")
    remark = "it changes other fields too: keep it for these. " if has_more else ""
    if is_addition or is_for_classless:
        return PolicyRules(default=value), remark
    return PolicyRules(default=value, is_enforced=True, allowed=(value,)), (
        f"{remark}it overwrote the class of pods that name another; these are refused now"
    )


def _merged(mutate: dict[str, Any]) -> tuple[str, bool, bool]:
    """Return the class that a mutation sets, whether only where none is, and whether more."""
    patch = mutate.get("patchStrategicMerge")
    if isinstance(patch, dict):
        spec = table(patch.get("spec"))
        for key, value in spec.items():
            name, anchor = _key(key)
            if name == FIELD and anchor in ("", "+"):
                return text(value), anchor == "+", len(spec) > 1 or len(patch) > 1
        raise _InexpressibleError("its merge patch sets no class of a pod")
    operations = mutate.get("patchesJson6902")
    if not isinstance(operations, str):
        raise _InexpressibleError("its form of mutation has no counterpart")
    try:
        parsed = parse_document(operations).value
    except YamlError as error:
        raise _InexpressibleError(f"its JSON patch cannot be read: {error}") from error
    entries = [table(item) for item in parsed] if isinstance(parsed, list) else []
    for entry in entries:
        if entry.get("path") == f"/spec/{FIELD}" and entry.get("op") in ("add", "replace"):
            return text(entry.get("value")), False, len(entries) > 1
    raise _InexpressibleError("its JSON patch sets no class of a pod")


def _key(key: str) -> tuple[str, str]:
    """Return the name of a key and its anchor, without the parentheses."""
    match = _ANCHORED.fullmatch(key)
    return (match["name"], match["anchor"]) if match else (key, "")


def _alternatives(validate: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the patterns that a validation allows, and whether pods without a class pass."""
    if "deny" in validate:
        return _denied(table(validate.get("deny")))
    patterns = validate.get("anyPattern")
    if not isinstance(patterns, list):
        patterns = [validate.get("pattern")]
    alternatives: list[str] = []
    is_optional = False
    for pattern in patterns:
        anchor, value = _pattern_of(pattern)
        is_optional = is_optional or bool(anchor)
        if anchor != "X":
            alternatives += _split(value)
    return alternatives, is_optional


def _pattern_of(pattern: Any) -> tuple[str, str]:
    """Return the anchor and pattern of the class, where nothing else is asked for."""
    if not isinstance(pattern, dict) or len(pattern) != 1:
        raise _InexpressibleError("its pattern asks for more than the class")
    ((outer, inner),) = pattern.items()
    if _key(outer)[0] != "spec" or _key(outer)[1] not in ("", "=") or not isinstance(inner, dict):
        raise _InexpressibleError("its pattern is not about the pod's class")
    if len(inner) != 1:
        raise _InexpressibleError("its pattern asks for more than the class")
    ((key, value),) = inner.items()
    name, anchor = _key(key)
    if name != FIELD or anchor not in ("", "=", "X"):
        raise _InexpressibleError("its pattern has an anchor without counterpart")
    return anchor, text(value)


def _split(pattern: str) -> list[str]:
    alternatives = [part.strip() for part in pattern.split("|")]
    for alternative in alternatives:
        if alternative in ("*", "?*"):
            raise _InexpressibleError(
                "it asks for any class; choose a defaultClassName or a minimumIsolation"
            )
        if not alternative or re.search(r"[!<>&{}\s]", alternative):
            raise _InexpressibleError(f"its pattern {pattern!r} has operators without counterpart")
    return alternatives


def _denied(deny: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the classes that a denial leaves, and whether it leaves pods without one.

    Raises _InexpressibleError.
    """
    conditions = list(_conditions(deny.get("conditions")))
    if len(conditions) != 1:
        raise _InexpressibleError("it denies by several conditions")
    (condition,) = conditions
    match = _CLASS_OF_POD.fullmatch(text(condition.get("key")).strip())
    if match is None:
        raise _InexpressibleError("it denies by another expression than the pod's class")
    if text(condition.get("operator")) not in _ONLY_THESE:
        raise _InexpressibleError("it forbids certain classes; list the allowed ones instead")
    value = condition.get("value")
    stated = [value] if isinstance(value, str) else value
    stated = stated if isinstance(stated, list) else []
    names = list(texts(stated))
    if not names or any("{{" in name for name in names):
        raise _InexpressibleError("the classes it allows are no constants")
    return [part for name in names for part in _split(name)], _absent(match) in stated


# Where a rule applies.


def _scopes(rule: dict[str, Any], namespace: str) -> Iterator[Scope]:
    """Yield the scopes of a rule. Raises _InexpressibleError."""
    excluded: list[str] = []
    for block in _blocks(table(rule.get("exclude"))):
        if set(block) - {"namespaces", "kinds"} or not block.get("namespaces"):
            raise _InexpressibleError("it excludes pods by more than their namespace")
        excluded += _exact(block)
    blocks = list(_blocks(table(rule.get("match"))))
    if not blocks:
        raise _InexpressibleError("it matches nothing")
    together: list[str] = []
    for block in blocks:
        unknown = sorted(set(block) - _SCOPE_KEYS)
        if unknown:
            raise _InexpressibleError(f"it selects pods by {', '.join(unknown)}")
        if _POD_KINDS.isdisjoint(texts(block.get("kinds"))):
            raise _InexpressibleError("it is not about pods")
        selector = table(block.get("namespaceSelector"))
        if "*" in json.dumps(selector) or "?" in json.dumps(selector):
            raise _InexpressibleError("its namespaceSelector has wildcards")
        names = _exact(block)
        if namespace:
            if names or selector or excluded:
                raise _InexpressibleError("a namespaced policy cannot select namespaces")
            yield Scope(namespace=namespace)
        elif names and not selector:
            together += names
        else:
            yield Scope(
                namespaces=tuple(names), excluded=tuple(sorted(set(excluded))), selector=selector
            )
    if together:
        yield Scope(namespaces=tuple(sorted(set(together))), excluded=tuple(sorted(set(excluded))))


def _blocks(match: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the resource filters of a match or exclude block. Raises _InexpressibleError."""
    if not match:
        return
    unknown = set(match) - {"any", "all", "resources"}
    if unknown:
        raise _InexpressibleError(f"it selects requests by {', '.join(sorted(unknown))}")
    every = match.get("all")
    if isinstance(every, list) and len(every) > 1:
        raise _InexpressibleError("it selects by several filters together")
    entries = [match] if "resources" in match else []
    for key in ("any", "all"):
        value = match.get(key)
        entries += [table(item) for item in value] if isinstance(value, list) else []
    for entry in entries:
        if "resources" not in entry or set(entry) - {"resources", "any", "all"}:
            raise _InexpressibleError("it selects requests by their user")
        yield table(entry["resources"])


def _exact(block: dict[str, Any]) -> list[str]:
    names = list(texts(block.get("namespaces")))
    if names == ["*"]:
        return []
    if any(character in name for name in names for character in "*?!"):
        raise _InexpressibleError("its namespaces have wildcards")
    return names
