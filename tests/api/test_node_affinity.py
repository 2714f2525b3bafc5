"""Node selectors and required node affinity."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.nodes import Node, matches_node
from moorage.api.pods import PodSpec

_NODE = msgspec.convert(
    {"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8", "odd": "x"}}}, Node
)


def _matches(**spec: Any) -> bool:
    return matches_node(msgspec.convert(spec, PodSpec), _NODE)


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _name(operator: str, *values: str) -> dict[str, Any]:
    expression = {"key": "metadata.name", "operator": operator, "values": list(values)}
    return {"matchFields": [expression]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [({}, True), ({"zone": "a"}, True), ({"zone": "b"}, False), ({"none": "a"}, False),
     ({"zone": "a", "cores": "9"}, False), ({"cores": "9", "zone": "a"}, False)],
)  # fmt: skip
def test_node_selectors(selector: dict[str, str], expected: bool) -> None:
    assert _matches(nodeSelector=selector) is expected
    # Both the selector and the affinity must admit the node.
    assert _matches(nodeSelector=selector, affinity=_affinity(_name("In", "n1"))) is expected
    assert not _matches(nodeSelector=selector, affinity=_affinity(_name("In", "n2")))


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (_label("zone", "In", "b", "a"), True),
        (_label("zone", "In", "b"), False),
        (_label("none", "In", "a"), False),
        (_label("zone", "NotIn", "b"), True),
        (_label("zone", "NotIn", "a"), False),
        (_label("none", "NotIn", "a"), True),
        (_label("zone", "Exists"), True),
        (_label("none", "Exists"), False),
        (_label("zone", "DoesNotExist"), False),
        (_label("none", "DoesNotExist"), True),
        (_label("cores", "Gt", "7"), True),
        (_label("cores", "Gt", "8"), False),
        (_label("cores", "Lt", "9"), True),
        (_label("cores", "Lt", "8"), False),
        (_label("cores", "Gt"), False),
        (_label("cores", "Gt", "1", "2"), False),
        (_label("none", "Gt", "1"), False),
        (_label("odd", "Gt", "1"), False),
        (_label("cores", "Lt", "x"), False),
        (_label("zone", "Odd", "a"), False),
        (_name("In", "n1"), True),
        (_name("NotIn", "n1"), False),
        ({**_label("zone", "In", "a"), **_name("In", "n1")}, True),
        ({**_label("zone", "In", "b"), **_name("In", "n1")}, False),
        ({**_label("zone", "In", "a"), **_name("In", "n2")}, False),
        ({"matchExpressions": [*_label("zone", "Exists")["matchExpressions"],
                               *_label("none", "Exists")["matchExpressions"]]}, False),
        ({}, False),
    ],
)  # fmt: skip
def test_terms(term: dict[str, Any], expected: bool) -> None:
    assert _matches(affinity=_affinity(term)) is expected
    # Terms are alternatives.
    assert _matches(affinity=_affinity(term, _name("In", "n2"))) is expected
    assert _matches(affinity=_affinity(_name("In", "n2"), term)) is expected
    assert _matches(affinity=_affinity(term, _name("In", "n1")))


@pytest.mark.parametrize("affinity", [None, {}, {"nodeAffinity": {}}, {"podAffinity": {}}])
def test_without_required_affinity_every_node_matches(affinity: Any) -> None:
    assert _matches(affinity=affinity)


def test_no_term_matches_no_node() -> None:
    assert not _matches(affinity=_affinity())
