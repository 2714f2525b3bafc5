"""Terms of affinity and spread, as they are parsed from a pod."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.scheduler.terms import NO_TERMS, PodTerms, Term, pod_terms, selector_of
from tests.scheduler.objects import a_pod

OWN = {"app": "web", "version": "2"}
_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def terms_of(**spec: Any) -> PodTerms:
    pod = a_pod(labels=OWN, **spec)
    return pod_terms(pod.spec, "own", pod.metadata.labels)


def term(**more: Any) -> dict[str, Any]:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, **more}


def one(**more: Any) -> Term:
    (required,) = terms_of(affinity={"podAffinity": {_HARD: [term(**more)]}}).required
    return required


@pytest.mark.parametrize(
    "affinity",
    [None, {}, {"podAffinity": {}}, {"podAntiAffinity": {_HARD: []}}, {"nodeAffinity": {}}],
)
def test_a_pod_that_looks_at_no_other_has_no_terms(affinity: Any) -> None:
    assert terms_of(affinity=affinity) is NO_TERMS
    assert not NO_TERMS.has_affinity
    assert not NO_TERMS.has_spread


@pytest.mark.parametrize(
    ("kind", "list_", "field"),
    [("podAffinity", _HARD, "required"), ("podAntiAffinity", _HARD, "required_anti"),
     ("podAffinity", _SOFT, "preferred"), ("podAntiAffinity", _SOFT, "preferred_anti")],
)  # fmt: skip
def test_each_list_of_terms(kind: str, list_: str, field: str) -> None:
    items = [term(), term(topologyKey="host")]
    if list_ == _SOFT:
        items = [{"weight": weight, "podAffinityTerm": wire_term}
                 for weight, wire_term in zip((3, 5), items, strict=True)]  # fmt: skip
    terms = terms_of(affinity={kind: {list_: items}})
    parsed = getattr(terms, field)
    if list_ == _SOFT:
        assert [wish.weight for wish in parsed] == [3, 5]
        parsed = [wish.term for wish in parsed]
    assert [term.topology_key for term in parsed] == ["zone", "host"]
    assert terms.has_affinity
    assert not terms.has_spread
    others = {"required", "required_anti", "preferred", "preferred_anti"} - {field}
    assert not any(getattr(terms, other) for other in others)


@pytest.mark.parametrize(
    ("more", "inside", "outside"),
    [
        ({}, {"own"}, {"other"}),
        ({"namespaces": ["other"]}, {"other"}, {"own"}),
        ({"namespaceSelector": {}}, {"own", "other", "labelled"}, set()),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, {"labelled"}, {"own", "other"}),
        ({"namespaces": ["other"], "namespaceSelector": {"matchLabels": {"team": "a"}}},
         {"other", "labelled"}, {"own"}),
    ],
)  # fmt: skip
def test_namespaces_of_a_term(more: dict[str, Any], inside: set[str], outside: set[str]) -> None:
    parsed_term = one(**more)
    for namespace in inside | outside:
        labels = {"team": "a"} if namespace == "labelled" else {}
        assert parsed_term.matches(namespace, {"app": "web"}, labels) is (namespace in inside)
        assert not parsed_term.matches(namespace, {"app": "db"}, labels)


@pytest.mark.parametrize(
    ("more", "matching", "other"),
    [
        ({"matchLabelKeys": ["version"]}, {"version": "2"}, {"version": "1"}),
        ({"mismatchLabelKeys": ["version"]}, {"version": "1"}, {"version": "2"}),
        ({"matchLabelKeys": ["none"]}, {}, None),
        ({"mismatchLabelKeys": ["none"]}, {"none": "x"}, None),
    ],
)
def test_label_keys_take_the_pods_own_values(
    more: dict[str, Any], matching: dict[str, str], other: dict[str, str] | None
) -> None:
    parsed_term = one(**more)
    assert parsed_term.matches("own", {"app": "web", **matching}, {})
    assert not parsed_term.matches("own", {"app": "db", **matching}, {})
    if other is not None:
        assert not parsed_term.matches("own", {"app": "web", **other}, {})


def test_label_keys_without_a_selector_select_nothing() -> None:
    assert not one(labelSelector=None, matchLabelKeys=["version"]).matches("own", OWN, {})


@pytest.mark.parametrize("raw", [None, {"matchExpressions": [{"key": "a", "operator": "Odd"}]}])
def test_a_selector_that_says_nothing_known_selects_nothing(raw: Any) -> None:
    selector = selector_of(raw)
    assert selector.matches_nothing
    assert not selector.matches(OWN)
    assert selector_of({}).matches(OWN)


def test_constraints_of_topology_spread() -> None:
    spread = {"topologyKey": "zone", "maxSkew": 2, "labelSelector": {"matchLabels": {"app": "web"}}}
    terms = terms_of(topologySpreadConstraints=[
        {**spread, "whenUnsatisfiable": "DoNotSchedule"},
        {**spread, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3, "maxSkew": 1,
         "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor",
         "matchLabelKeys": ["version"]},
    ])  # fmt: skip
    (hard,), (soft,) = terms.hard_spread, terms.soft_spread
    assert (hard.topology_key, hard.max_skew, hard.min_domains) == ("zone", 2, 1)
    assert (hard.honors_affinity, hard.honors_taints) == (True, False)
    assert (soft.max_skew, soft.min_domains) == (1, 3)
    assert (soft.honors_affinity, soft.honors_taints) == (False, True)
    assert hard.selector.matches({"app": "web"})
    assert not soft.selector.matches({"app": "web"})
    assert soft.selector.matches(OWN)
    assert terms.has_spread
    assert not terms.has_affinity
