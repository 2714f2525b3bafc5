"""Node affinity: matching a pod's `nodeSelector` and required node affinity with a node.

Used by the scheduler as a filter, and by the node agent before it runs a pod. Source:
component-helpers `nodeaffinity`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moorage.api.nodes import Node
from moorage.api.numbers import parse_int
from moorage.api.pods import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec


def matches_node(spec: PodSpec, node: Node) -> bool:
    """Return whether `spec.nodeSelector` and the required node affinity both match the node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return required is None or matches_selector(required, node)


def matches_selector(selector: NodeSelector, node: Node) -> bool:
    """Return whether any term matches the node: terms are ORed."""
    return any(matches_term(term, node) for term in selector.node_selector_terms)


def matches_term(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether all expressions of a term match. An empty term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(
        _holds(requirement, node.metadata.labels) for requirement in term.match_expressions
    ) and all(_holds(requirement, fields) for requirement in term.match_fields)


def _holds(requirement: NodeSelectorRequirement, values: Mapping[str, str]) -> bool:
    check = _OPERATORS.get(requirement.operator)
    return check is not None and check(values.get(requirement.key), requirement.values)


def _compared(
    value: str | None, bounds: tuple[str, ...], holds: Callable[[int, int], bool]
) -> bool:
    if value is None or len(bounds) != 1:
        return False
    try:
        return holds(parse_int(value), parse_int(bounds[0]))
    except ValueError:
        return False


_OPERATORS: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values, int.__gt__),
    "Lt": lambda value, values: _compared(value, values, int.__lt__),
}
