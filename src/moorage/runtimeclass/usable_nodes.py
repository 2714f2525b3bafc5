"""Usable nodes of a pod: those that its selectors and required affinity leave, as a set of bits.

Labels of the group runtime.moorage.dev can be left out: they say which handlers a node has, not
which nodes a pod may use. Source: core/v1 `NodeSelectorTerm` (terms are ORed, an empty one matches
nothing), component-helpers `nodeaffinity`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorage.api.numbers import parse_int
from moorage.api.runtime_group import GROUP
from moorage.runtimeclass.node_sets import Nodes, NodeSet

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_MOST_REQUIREMENTS = 256
_MOST_VALUES = 20_000
"""Above one of these, required affinity is not evaluated: all nodes count as usable, and none is
waited for. Values are those that are looked at: those that a requirement lists, or all of its
label, of which a hostname has one for each node."""
_COMPARED = 10
"""How many values a comparison as integers counts for."""
_NAME_FIELD = "metadata.name"

Json = Mapping[str, Any]


def is_own_label(key: str) -> bool:
    """Return whether a label says what a node's handlers are, in the group runtime.moorage.dev."""
    prefix, _, _ = key.partition("/")
    return prefix == GROUP or prefix.endswith(f".{GROUP}")


def required_terms(spec: Json) -> list[Json] | None:
    """Return the terms of the required node affinity, None without any."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(REQUIRED)
    return None if required is None else required.get("nodeSelectorTerms") or []


def usable_nodes(
    spec: Json, class_selector: Mapping[str, str], nodes: Nodes, *, with_own_labels: bool = False
) -> NodeSet:
    """Return the nodes that a pod may use at all, by what it and its class select.

    `spec` is a pod's specification as JSON. Without `with_own_labels`, requirements on labels of
    the group runtime.moorage.dev are ignored. Taints and room are the scheduler's.
    """
    selector = {**(spec.get("nodeSelector") or {}), **class_selector}
    found = nodes.labelled(
        (key, value) for key, value in selector.items() if with_own_labels or not is_own_label(key)
    )
    if name := spec.get("nodeName"):
        found &= nodes.named(name)
    terms = required_terms(spec)
    if terms is None or sum(map(_size, terms)) > _MOST_REQUIREMENTS:
        return found
    if sum(_values(term, nodes) for term in terms) > _MOST_VALUES:
        return found
    matching = 0
    for term in terms:
        matching |= _term_nodes(term, nodes, with_own_labels)
    return found & matching


def _size(term: Json) -> int:
    return len(term.get("matchExpressions") or ()) + len(term.get("matchFields") or ())


def _values(term: Json, nodes: Nodes) -> int:
    """Return how many values are looked at for a term."""
    count = sum(len(one.get("values") or ()) for one in term.get("matchFields") or ())
    for one in term.get("matchExpressions") or ():
        match one.get("operator"):
            case "Exists" | "DoesNotExist":
                count += len(nodes.label_values(one.get("key", "")))
            case "Gt" | "Lt":
                count += _COMPARED * len(nodes.label_values(one.get("key", "")))
            case _:
                count += len(one.get("values") or ())
    return count


def _term_nodes(term: Json, nodes: Nodes, with_own_labels: bool) -> NodeSet:
    if not _size(term):
        return 0
    found = nodes.existing
    for requirement in term.get("matchExpressions") or ():
        if with_own_labels or not is_own_label(requirement.get("key", "")):
            found &= _matching(requirement, nodes)
    for requirement in term.get("matchFields") or ():
        found &= _named(requirement, nodes)
    return found


def _matching(requirement: Json, nodes: Nodes) -> NodeSet:
    """Return the nodes whose label meets a requirement; none for an operator that is unknown."""
    by_value = nodes.label_values(requirement.get("key", ""))
    values = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return _united(by_value.get(value, 0) for value in values)
        case "NotIn":
            return nodes.existing & ~_united(by_value.get(value, 0) for value in values)
        case "Exists":
            return _united(by_value.values())
        case "DoesNotExist":
            return nodes.existing & ~_united(by_value.values())
        case "Gt":
            return _compared(by_value, values, int.__gt__)
        case "Lt":
            return _compared(by_value, values, int.__lt__)
    return 0


def _compared(
    by_value: Mapping[str, NodeSet], bounds: Iterable[str], holds: Callable[[int, int], bool]
) -> NodeSet:
    try:
        (bound,) = map(parse_int, bounds)
    except ValueError:
        return 0
    return _united(
        found
        for value, found in by_value.items()
        if (number := _number(value)) is not None and holds(number, bound)
    )


def _number(text: str) -> int | None:
    try:
        return parse_int(text)
    except ValueError:
        return None


def _named(requirement: Json, nodes: Nodes) -> NodeSet:
    """Return the nodes that a field's requirement leaves; the name is the only field there is."""
    if requirement.get("key") != _NAME_FIELD:
        return 0
    found = _united(nodes.named(name) for name in requirement.get("values") or ())
    match requirement.get("operator"):
        case "In":
            return found
        case "NotIn":
            return nodes.existing & ~found
    return 0


def _united(sets: Iterable[NodeSet]) -> NodeSet:
    united = 0
    for one in sets:
        united |= one
    return united
