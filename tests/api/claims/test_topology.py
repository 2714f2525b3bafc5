"""Where volumes can be used."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.claims import is_reachable, matches_topologies, zone_conflicts
from moorage.api.claims.classes import only_hosts
from moorage.api.persistent_volumes import TopologySelectorTerm
from tests.api.claims.objects import HOSTNAME, a_volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def test_a_volume_without_affinity_can_be_used_everywhere() -> None:
    assert is_reachable(a_volume(), {})
    assert is_reachable(a_volume(node="n1"), {HOSTNAME: "n1"})
    assert not is_reachable(a_volume(node="n1"), {HOSTNAME: "n2"})
    assert not is_reachable(a_volume(node="n1"), {})


@pytest.mark.parametrize(
    ("terms", "labels", "holds"),
    [
        ([], {}, True),
        ([{}], {}, False),
        ([{"matchLabelExpressions": [{"key": "a", "values": ["1", "2"]}]}], {"a": "2"}, True),
        ([{"matchLabelExpressions": [{"key": "a", "values": ["1"]}]}], {"a": "2"}, False),
        ([{"matchLabelExpressions": [{"key": "a", "values": ["1"]}]}], {}, False),
        ([{"matchLabelExpressions": [{"key": "a", "values": ["1"]},
                                     {"key": "b", "values": ["1"]}]}], {"a": "1"}, False),
        ([{}, {"matchLabelExpressions": [{"key": "a", "values": ["1"]}]}], {"a": "1"}, True),
    ],
)  # fmt: skip
def test_allowed_topologies(terms: list[Any], labels: dict[str, str], holds: bool) -> None:
    typed = msgspec.convert(terms, tuple[TopologySelectorTerm, ...])
    assert matches_topologies(typed, labels) is holds


@pytest.mark.parametrize(
    ("of_volume", "of_node", "conflicts"),
    [
        ({ZONE: "a"}, {}, False),
        ({ZONE: "a"}, {ZONE: "a"}, False),
        ({ZONE: "a"}, {ZONE: "b"}, True),
        ({ZONE: "a__b"}, {ZONE: "b"}, False),
        ({OLD_ZONE: "a"}, {ZONE: "a"}, False),
        ({OLD_ZONE: "a"}, {ZONE: "b"}, True),
        ({REGION: "r"}, {ZONE: "a"}, True),
        ({}, {ZONE: "a"}, False),
    ],
)
def test_zones(of_volume: dict[str, str], of_node: dict[str, str], conflicts: bool) -> None:
    assert zone_conflicts(a_volume(labels=of_volume), of_node) is conflicts


def _affinity(*terms: Any) -> Any:
    return {"required": {"nodeSelectorTerms": list(terms)}}


def _host(*values: str, key: str = HOSTNAME, operator: str = "In") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("affinity", "hosts"),
    [
        (None, None),
        ({}, None),
        (_affinity(), None),
        (_affinity(_host("n1")), ("n1",)),
        (_affinity(_host("n2", "n1", "n2")), ("n2", "n1")),
        (_affinity(_host("n1"), _host("n2")), None),
        (_affinity(_host("n1", operator="NotIn")), None),
        (_affinity(_host("a", key=ZONE)), None),
        (_affinity({"matchExpressions": _host("n1")["matchExpressions"] * 2}), None),
        (_affinity({"matchFields": _host("n1")["matchExpressions"]}), None),
        (_affinity({**_host("n1"), "matchFields": _host("n1")["matchExpressions"]}), None),
    ],
)
def test_a_volume_that_names_hosts_alone_is_found_by_them(
    affinity: Any, hosts: tuple[str, ...] | None
) -> None:
    volume = a_volume(**({} if affinity is None else {"nodeAffinity": affinity}))
    assert only_hosts(volume) == hosts
